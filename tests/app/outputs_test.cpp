#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/io/reading.h"
#include "tests/io/test_folder.h"
#include "tools/app/alerts/alerts.h"
#include "tools/app/outputs/frame_log.h"
#include "tools/app/watches.h"

namespace millrace::app {
namespace {

class FrameLogTest : public io::FolderTest {
 protected:
  static std::vector<nlohmann::json> lines_of(std::istream&& file) {
    std::vector<nlohmann::json> lines;
    for (std::string text; std::getline(file, text);) lines.push_back(nlohmann::json::parse(text));
    return lines;
  }
  std::vector<nlohmann::json> lines() const { return lines_of(std::ifstream(path_)); }
  /// Checks that there is one for each of so many frames.
  static void expect_all(const std::vector<nlohmann::json>& lines, std::size_t frames) {
    ASSERT_EQ(lines.size(), frames);
    for (std::size_t n = 0; n < frames; ++n) EXPECT_EQ(lines[n]["frame"], n);
  }

  static void predicted(FrameLog& log, std::int64_t number, float loss) {
    engine::Sample sample(0);
    sample.info = {.index = number, .frame = number + 5, .captured = engine::Clock::now()};
    log.predicted(sample, loss);
  }

  const std::string path_ = folder / "log.jsonl";
  engine::Monitor monitor_{{1, 1}, 0};
  io::FrameQueue queue_{1, io::Drop::newest};
  engine::LossHistory network_, baseline_;
  Novelty novelty_{3, 96, 128, {}};
  LogSubject subject_{monitor_, queue_, network_, baseline_, novelty_};
};

TEST_F(FrameLogTest, FramesThatFindNoRoomAreCounted) {
  constexpr std::int64_t kMissed = 10;
  FrameLog log(path_, 2, subject_);
  const auto frames = 2 * std::int64_t(FrameLog::kRoom + kMissed);
  for (std::int64_t i = 0; i < frames; ++i) predicted(log, i, 0.5f);
  log.write();
  predicted(log, frames, 0.5f);
  log.write();
  const auto written = lines();
  ASSERT_EQ(written.size(), FrameLog::kRoom + 1);
  for (std::size_t i = 0; i < FrameLog::kRoom; ++i) ASSERT_EQ(written[i]["frame"], 2 * i);
  EXPECT_EQ(written.back()["frame"], frames);
  EXPECT_EQ(written.back()["missed"], kMissed);
}

TEST_F(FrameLogTest, ALossThatIsNoneIsNullAndAFileThatIsMovedOrDeletedIsMadeAnew) {
  FrameLog log(path_, 1, subject_);
  baseline_.add(0.25f);
  for (const bool moved : {false, true}) {
    predicted(log, 0, std::nanf(""));
    log.write();
    ASSERT_EQ(lines().size(), 1u);
    EXPECT_TRUE(lines()[0]["loss"].is_null());
    EXPECT_EQ(lines()[0]["mean_frame_loss"], 0.25);
    EXPECT_EQ(lines()[0]["source_frame"], 5);
    if (moved)
      std::filesystem::rename(path_, path_ + ".1");
    else
      std::filesystem::remove(path_);
  }
  predicted(log, 1, 0.5f);
  log.write();
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_EQ(lines()[0]["frame"], 1);
  EXPECT_EQ(log.error(), "");
}

// A limit on file size stands in for a full disk.
TEST_F(FrameLogTest, ADiskThatIsFullForAWhileCostsNoLine) {
  FrameLog log(path_, 1, subject_);
  predicted(log, 0, 0.5f);
  log.write();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{rlim_t(std::filesystem::file_size(path_)) + 100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 1; i < 5; ++i) {
    predicted(log, i, 0.5f);
    log.write();
    EXPECT_EQ(log.error().find(path_ + ": "), 0u) << log.error();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  log.write();
  EXPECT_EQ(log.error(), "");
  expect_all(lines(), 5);  // none is cut short
}

TEST_F(FrameLogTest, APipeThatNobodyReadsHoldsUpNothing) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THROW(FrameLog(path_, 1, subject_), std::runtime_error) << "nobody is there";
  const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK);
  FrameLog log(path_, 1, subject_);
  constexpr int kFrames = 1000;  // some 400 KB; a pipe takes 64
  for (int i = 0; i < kFrames; ++i) predicted(log, i, 0.5f);
  log.write();
  EXPECT_EQ(log.error(), "");
  std::string read;
  for (char block[4096]; std::count(read.begin(), read.end(), '\n') < kFrames; log.write()) {
    const ssize_t got = ::read(reader, block, sizeof block);
    ASSERT_GT(got, 0);
    read.append(block, std::size_t(got));
  }
  expect_all(lines_of(std::istringstream(read)), kFrames);
  close(reader);
}

using AlertsTest = io::FolderTest;

TEST_F(AlertsTest, AnEventWithinAnothersClipProlongsAndNamesIt) {
  if (io::gstreamer_version().empty()) GTEST_SKIP() << "no video";
  const std::vector<float> grey(3 * 16 * 16, 0.5f);
  Alerts alerts({.snapshots = folder.path(),
                 .channels = 3,
                 .height = 16,
                 .width = 16,
                 .clip_seconds = 1,
                 .fps = 10});
  for (int n = 0; n < 60; ++n) {
    alerts.film(grey.data(), grey.data(), 0.1 * n);
    if (n == 15 || n == 22)
      alerts.raise({.event = {.event = n, .frame = n}}, {grey.data(), grey.data(), grey.data()});
  }
  alerts.finish();
  const auto clip_of = [&](const std::string& event) -> std::string {
    const std::string name = "19700101T000000Z-event-" + event + "-frame-" + event + ".json";
    return nlohmann::json::parse(std::ifstream(folder / name))["clip"];
  };
  EXPECT_EQ(clip_of("22"), clip_of("15"));
  EXPECT_EQ(io::read_uri(clip_of("15")).frames.size(), 28u) << "5 to 32";
}

TEST(RateWatch, FollowsTheSourcesWord) {
  engine::Monitor monitor({1, 1}, 10);
  RateWatch rate(monitor);
  EXPECT_EQ(rate.look(0, false), "");
  EXPECT_EQ(rate.look(10, false), "");
  EXPECT_EQ(rate.look(5, false), "has a new frame rate; F = 5");
  EXPECT_EQ(monitor.fps(), 5);
  EXPECT_FALSE(rate.estimated());
  EXPECT_EQ(rate.look(25, true), "") << "a second line within a minute";
  EXPECT_EQ(monitor.fps(), 25);
  EXPECT_TRUE(rate.estimated());
}

TEST(RateWatch, AnEstimateIsToldOnceAndConverges) {
  engine::Monitor monitor({1, 1}, 0);
  RateWatch rate(monitor);
  EXPECT_EQ(rate.look(25, true), "has no frame rate; using F = 25 from its time stamps");
  EXPECT_TRUE(rate.estimated());
  EXPECT_NEAR(monitor.read().budget, 40, 1e-6);
  for (int n = 0; n < 1000; ++n) EXPECT_EQ(rate.look(n % 2 == 0 ? 26 : 24, true), "");
  EXPECT_NEAR(monitor.fps(), 25, 0.1);
  for (int n = 0; n < 1000; ++n) EXPECT_EQ(rate.look(26, true), "");
  EXPECT_NEAR(monitor.fps(), 26, 1e-3);
}

TEST(RollBackWatch, TellsAtMostOneLineAMinuteWithTheCount) {
  RollBackWatch watch;
  const std::chrono::steady_clock::time_point start;
  int lines = 0;
  std::string last;
  // 533 roll-backs in 90 seconds, looked at 20 times a second.
  for (int tick = 0; tick < 1800; ++tick) {
    const engine::LossGuard::Status guard{.roll_backs = 533 * (tick + 1) / 1800,
                                          .last_frame = tick};
    const std::string line =
        watch.look(guard, /*all=*/tick == 1799, start + std::chrono::milliseconds(50 * tick));
    if (line.empty()) continue;
    ++lines;
    last = line;
    if (lines == 2) {
      EXPECT_NE(line.find("; 355 roll-backs since"), std::string::npos) << line;
    } else if (lines == 1) {
      EXPECT_EQ(line.find("since the last"), std::string::npos) << line;
    }
  }
  EXPECT_EQ(lines, 3);  // at 0 s, 60 s and the end
  EXPECT_NE(last.find("; 177 roll-backs since the last such line"), std::string::npos) << last;
}

}  // namespace
}  // namespace millrace::app
