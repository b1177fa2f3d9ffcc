// A run that is fed with frames as bytes equals the oracle on their floats, bit for bit, with every
// reader on every device.
#include <gtest/gtest.h>

#include "engine/trainer/trainer_sample.h"
#include "tests/engine/frame_stream.h"

namespace millrace::engine {
namespace {

constexpr std::int64_t kFrames = 60;

enum class Target { input, bytes, floats };

struct FedCase {
  std::string schedule;
  int stages;
  Target target;
};

/// small() on frames as bytes.
TrainerOptions fed_by_bytes(const FedCase& with) {
  TrainerOptions options = small(with.schedule, with.stages, {});
  for (int stage = 1; stage < with.stages; ++stage) options.cut.push_back(2 * stage);
  options.input_as_bytes = true;
  options.target_is_input = with.target == Target::input;
  options.target_as_bytes = with.target == Target::bytes;
  return options;
}

TrainerOptions by_programs(TrainerOptions options) {
  options.capture = Capture::graph;
  return options;
}

class FramesAsBytes : public testing::TestWithParam<FedCase> {};

TEST_P(FramesAsBytes, EqualTheOracleOnTheirFloats) {
  const TrainerOptions eager = fed_by_bytes(GetParam()), recorded = by_programs(eager);
  expect_equal(by_frames(eager, kFrames), by_oracle(eager, kFrames, 1, false, samples_of(eager)));
  expect_equal(by_frames(recorded, kFrames),
               by_oracle(recorded, kFrames, 1, true, samples_of(recorded)));
}

std::string name_of(const testing::TestParamInfo<FedCase>& info) {
  static const char* const targets[] = {"input", "bytes", "floats"};
  return info.param.schedule + "_" + std::to_string(info.param.stages) + "_stages_target_" +
         targets[int(info.param.target)];
}

INSTANTIATE_TEST_SUITE_P(
    Cases, FramesAsBytes,
    testing::Values(FedCase{"partime", 1, Target::input}, FedCase{"partime", 1, Target::bytes},
                    FedCase{"partime", 1, Target::floats}, FedCase{"partime", 3, Target::input},
                    FedCase{"partime", 3, Target::bytes}, FedCase{"partime", 3, Target::floats},
                    FedCase{"gpipe", 3, Target::bytes}),
    name_of);

/// Stages between read the target as well.
TEST(FramesAsBytes, ReadByEveryStage) {
  TrainerOptions options = by_programs(fed_by_bytes({"partime", 3, Target::input}));
  options.correction.kind = "local";
  expect_equal(by_frames(options, kFrames),
               by_oracle(options, kFrames, 1, true, samples_of(options)));
}

TEST(TrainerSample, MakesFloatsOfBytesOnceAFrame) {
  capture::SampleBuffers buffers(2, {1, 1, 2, 2}, {}, false, {.input = true});
  TrainerSample first(buffers, 0, 1), second(buffers, 1, 1);
  std::ranges::fill(second.input_bytes(), 255);
  EXPECT_EQ(second.shown_input()[3], 1.0f);
  buffers.input[1].fill_(51);
  EXPECT_EQ(second.shown_input()[3], 1.0f);
  EXPECT_EQ(first.shown_input()[3], 0.0f);
  second.input_bytes();  // another frame is written
  EXPECT_EQ(second.shown_target()[3], 0.2f);
}

TEST(TrainerSample, ShowsFloatsWhereTheyLie) {
  capture::SampleBuffers buffers(1, {1, 1, 2, 2}, {1, 1, 2, 2});
  TrainerSample sample(buffers, 0, 1);
  EXPECT_EQ(sample.shown_input().data(), sample.input().data());
  EXPECT_EQ(sample.memory()[1].data(), reinterpret_cast<std::byte*>(sample.target().data()));
}

}  // namespace
}  // namespace millrace::engine
