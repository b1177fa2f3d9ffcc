// Stages on several devices, with and without access to each other's memory, learn as on one; and
// with cores among them as the schedule says.
#include <gtest/gtest.h>

#include <algorithm>

#include "capture/devices.h"
#include "tests/engine/trained_by_ranks.h"
#include "tests/repetitions.h"

namespace millrace::engine {
namespace {

constexpr int kRun = 20;  // samples; few: the host device is slow
const std::string kSchedules[] = {"partime", "pipedream", "2bw", "1f1b"};

using Places = std::vector<int>;  ///< [stage]: device number, -1 a core

/// All in a long run, otherwise two that differ by schedule.
std::vector<Places> some_of(const std::vector<Places>& all, const std::string& schedule) {
  if (is_long()) return all;
  const auto number = std::size_t(std::ranges::find(kSchedules, schedule) - kSchedules);
  return {all[2 * number % all.size()], all[(2 * number + 1) % all.size()]};
}

TrainerOptions placed(const std::string& schedule, const Places& places) {
  std::vector<int> cut;
  for (std::size_t i = 1; i < places.size(); ++i) cut.push_back(int(2 * i));
  TrainerOptions options = small(schedule, int(places.size()), std::move(cut));
  options.capture = Capture::automatic;
  for (const int place : places)
    options.devices.push_back({.cuda = place >= 0, .index = std::max(place, 0)});
  return options;
}

class TwoDevices : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (capture::cuda_devices() < 2)
      GTEST_SKIP() << "no two CUDA devices here: nothing of this ran";
  }
};

TEST_P(TwoDevices, LearnAsOneDoes) {
  for (const Places& places : some_of({{0, 1}, {0, 1, 0, 1}, {1, 1, 0}}, GetParam())) {
    const Places one(places.size(), 0);
    expect_equal(by_pipeline(placed(GetParam(), places), kRun),
                 by_pipeline(placed(GetParam(), one), kRun));
  }
}

TEST_P(TwoDevices, LearnBesideACore) {
  for (const Places& places :
       some_of({{0, -1, 1}, {-1, 0, 1}, {1, 0, -1}, {-1, 1, -1, 0}}, GetParam())) {
    const TrainerOptions options = placed(GetParam(), places);
    const Trained first = by_pipeline(options, kRun), second = by_pipeline(options, kRun),
                  expected = by_oracle(options, kRun);
    expect_equal_bits(first.weights, second.weights);
    ASSERT_EQ(first.losses.size(), expected.losses.size());
    for (std::size_t n = 0; n < expected.losses.size(); ++n)
      EXPECT_NEAR(first.losses[n], expected.losses[n], 1e-5f) << "sample " << n;
  }
}

TEST_P(TwoDevices, LearnAsOneProcessByRanks) {
  // One device each, since these ranks are threads: each waits for all of its device when it
  // records.
  for (const Places& places :
       some_of({{0, 1}, {-1, 1}, {1, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}}, GetParam())) {
    TrainerOptions options = placed(GetParam(), places);
    const Trained expected = by_pipeline(options, kRun);
    for (const int place : places) options.rank_of_worker.push_back(place != places.front());
    expect_equal(by_ranks(options, kRun, 2), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, TwoDevices, testing::ValuesIn(kSchedules));

}  // namespace
}  // namespace millrace::engine
