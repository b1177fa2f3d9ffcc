#include "tools/app/alerts/alerts.h"

#include <cmath>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/complaint.h"
#include "tests/io/loopback.h"
#include "tests/io/test_folder.h"
#include "tools/app/alerts/channels.h"

namespace millrace::app {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

/// A receiver that is called and never answers.
struct SilentReceiver {
  SilentReceiver() { port.listen(); }
  std::string url() const {
    return "http://eve:secret@127.0.0.1:" + std::to_string(port.number) + "/";
  }
  const io::Port port;
};

TEST(Webhook, NoAnswerInTimeIsAFailureThatNamesNoPassword) {
  const SilentReceiver silent;
  const std::string late =
      complaint<std::runtime_error>([&] { post_json(silent.url(), "{}", milliseconds(100)); });
  EXPECT_NE(late.find("no response within 100 ms"), std::string::npos);
  EXPECT_EQ(late.find("secret"), std::string::npos);
}

TEST(AlertJson, IsOneLineWithoutSecretsOrNan) {
  Alert alert;
  alert.event.event = 2;
  alert.event.frame = 7;
  alert.loss = std::nan("");
  alert.snapshot = "a\xff.png";
  const std::string json = alert_json(alert, "rtsp://eve:secret@host/");
  EXPECT_EQ(json.find('\n'), json.npos);
  EXPECT_EQ(json.find("secret"), json.npos);
  EXPECT_NE(json.find("\"loss\":null"), json.npos) << json;
  EXPECT_NE(json.find("\"event\":2,\"frame\":7"), json.npos) << json;
}

/// Waits until `what` is true, at most 20 s.
bool comes_true(const std::function<bool()>& what) {
  for (int n = 0; n < 2000 && !what(); ++n) std::this_thread::sleep_for(milliseconds(10));
  return what();
}

TEST(Alerts, TheLatestSnapshotsAreKeptOverRuns) {
  const io::TestFolder folder;
  const std::vector<float> picture(3 * 4 * 6, 0.5f);
  for (const auto& [keep, first, last] : {std::tuple(2u, 1, 3), {1u, 4, 4}}) {
    for (const char* event : {"2-frame-20", "3-frame-30"}) {  // and their clips
      std::error_code none_yet;
      for (const auto& entry : std::filesystem::directory_iterator(folder / "shots", none_yet))
        if (std::filesystem::path path = entry.path();
            path.string().ends_with(event + std::string(".png")))
          io::put_bytes(path.replace_extension(".mp4"), "film");
    }
    Alerts alerts(
        {.snapshots = folder / "shots", .channels = 3, .height = 4, .width = 6, .keep = keep});
    for (int n = first; n <= last; ++n) {
      alerts.raise({.event = {.event = n, .frame = 10 * n}},
                   {picture.data(), picture.data(), picture.data()});
      EXPECT_TRUE(comes_true([&] { return alerts.told() == n - first + 1; }))
          << alerts.last_error();
    }
    EXPECT_EQ(alerts.failed(), 0);
    io::put_bytes(folder / "shots/kept.png", "not ours");
  }
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "shots"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  ASSERT_EQ(names.size(), 3u) << "the oldest is gone, of the run before, too";
  EXPECT_TRUE(names[0].ends_with("-event-4-frame-40.json")) << names[0];
  EXPECT_TRUE(names[1].ends_with("-event-4-frame-40.png")) << names[1];
  EXPECT_EQ(names[2], "kept.png");
}

TEST(Alerts, WhatFindsNoRoomIsDroppedAndCounted) {
  const SilentReceiver silent;
  Alerts alerts(
      {.webhook = silent.url(), .mqtt = "mqtt://127.0.0.1:1", .patience = milliseconds(300)});
  constexpr int kRaised = 50;
  for (int n = 0; n < kRaised; ++n) alerts.raise({.event = {.event = n}});
  EXPECT_GE(alerts.dropped(), kRaised - Alerts::kWaiting - 2);
  alerts.finish();
  EXPECT_EQ(alerts.failed() + alerts.dropped(), kRaised) << "by event, not by receiver";
  EXPECT_EQ(alerts.told(), 0);
  EXPECT_EQ(alerts.last_error().find("secret"), std::string::npos);
}

TEST(Alerts, AFolderThatCannotBeWrittenIsTold) {
  const io::TestFolder folder;
  io::put_bytes(folder / "file", "");
  const std::vector<float> picture(1 * 2 * 2, 0.5f);
  Alerts alerts({.snapshots = folder / "file", .channels = 1, .height = 2, .width = 2});
  alerts.raise({.event = {.event = 1}}, {picture.data(), picture.data(), picture.data()});
  EXPECT_TRUE(comes_true([&] { return alerts.failed() == 1; }));
  EXPECT_NE(alerts.last_error(), "");
}

TEST(Mqtt, ABrokerThatIsAwayFailsInTimeWithoutThePassword) {
  if (!mqtt_error("mqtt://h").empty()) GTEST_SKIP() << "this build has no libmosquitto";
  const std::string told = complaint<std::runtime_error>(
      [] { publish("mqtt://eve:secret@127.0.0.1:1", "a", "b", milliseconds(200)); });
  EXPECT_TRUE(told.starts_with("mqtt://***@127.0.0.1:1: ")) << told;
}

}  // namespace
}  // namespace millrace::app
