// Lines about frames, and what becomes of those that find no room.
#include "tools/run/frame_log.h"

#include <gtest/gtest.h>
#include <unistd.h>  // a name of our own

#include <cmath>       // nan
#include <filesystem>  // the log's folder
#include <fstream>     // the log

#include <nlohmann/json.hpp>  // lines

namespace millrace::tools {
namespace {

class FrameLogTest : public testing::Test {
 protected:
  FrameLogTest()
      : folder_(testing::TempDir() + "/frame-log-" + std::to_string(getpid())),
        path_(folder_ + "/log.jsonl") {}
  ~FrameLogTest() override { std::filesystem::remove_all(folder_); }

  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(path_);
    for (std::string text; std::getline(file, text);) lines.push_back(nlohmann::json::parse(text));
    return lines;
  }

  static engine::SampleInfo sample(std::int64_t number) {
    return {.sample = number, .frame = number + 5, .captured = engine::Clock::now()};
  }

  std::string folder_, path_;
  engine::Monitor monitor_{{1, 1}, 0};
  io::FrameQueue queue_{1, io::Drop::newest};
  engine::LossHistory network_, baseline_;
  Novelty novelty_;
  LogSubject subject_{monitor_, queue_, network_, baseline_, novelty_};
};

TEST_F(FrameLogTest, FramesThatFindNoRoomAreCounted) {
  constexpr std::int64_t kMissed = 10;
  FrameLog log(path_, 2, subject_);
  const auto frames = 2 * std::int64_t(FrameLog::kRoom + kMissed);
  for (std::int64_t i = 0; i < frames; ++i) log.predicted(sample(i), 0, 0.5f);
  log.write();
  log.predicted(sample(frames), 0, 0.5f);
  log.write();
  const auto written = lines();
  ASSERT_EQ(written.size(), FrameLog::kRoom + 1);
  for (std::size_t i = 0; i < FrameLog::kRoom; ++i) ASSERT_EQ(written[i]["frame"], 2 * i);
  EXPECT_EQ(written.back()["frame"], frames);
  EXPECT_EQ(written.back()["missed"], kMissed);
}

TEST_F(FrameLogTest, ALossThatIsNoneIsNull) {
  FrameLog log(path_, 1, subject_);
  baseline_.add(0.25f);
  log.predicted(sample(0), 0, std::nanf(""));
  log.write();
  const auto written = lines();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_TRUE(written[0]["loss"].is_null());
  EXPECT_EQ(written[0]["mean_frame_loss"], 0.25);
  EXPECT_EQ(written[0]["source_frame"], 5);
}

}  // namespace
}  // namespace millrace::tools
