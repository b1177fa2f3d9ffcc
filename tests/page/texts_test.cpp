// The formats for scripts: JSON and Prometheus' text.
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tools/page/json.h"

namespace millrace::page {
namespace {

using nlohmann::json;

Snapshot snapshot() {
  Snapshot s;
  s.state = Json::parse(R"({
    "source": "rtsp://user:secret@camera/street", "classes": [{"name": "\"sky\""}],
    "frames": {"trained": 7}, "loss": {"recent": 0.123456789}, "learning_rate": 0.0005,
    "novelty": {"unexpected": 12, "events": 3, "deviation": 4.5, "by_reason": {"local": 2}}, "guard": {"roll_backs": 2},
    "stages": [{"device": "cpu:0", "dead_units": 3, "updates": 2},
               {"device": "odd \"one\"\n", "updates": 0}],
    "stream": {"connected": true, "reconnects": 0,
               "last_error": "rtsp://user:secret@camera/street: gone"},
    "controls": {"notice": "saved to ftp://user:secret@host/w", "trouble": "", "paused": false,
                 "failed_saves": 2}})");
  s.state["loss"]["last"] = std::nan("");
  s.frames = {.trained = 7, .predicted_only = 1};
  s.busy.resize(2);
  for (int i = 0; i < 5; ++i) s.busy[0].record(10'000'000);
  for (int i = 0; i < 7; ++i) s.latency.record(20'000'000);
  return s;
}

TEST(StateJson, IsReadBackAndHoldsNoSecrets) {
  Trend trend;
  Controls controls({.save = false});
  const std::string text = state_json(trend.add(snapshot(), Clock::now()), controls, 3);
  const json state = json::parse(text);
  EXPECT_EQ(text.find("secret"), std::string::npos);
  EXPECT_EQ(state["source"], "rtsp://***@camera/street");
  EXPECT_EQ(state["classes"][0]["name"], "\"sky\"");
  EXPECT_TRUE(state["loss"]["last"].is_null());
  EXPECT_EQ(state["loss"]["recent"], 0.123457);
  EXPECT_EQ(state["stages"][1]["load"], 0);
  EXPECT_EQ(state["controls"]["offered"]["save"], false);
  EXPECT_EQ(state["controls"]["offered"]["pause"], true);
}

TEST(Peak, ShowsTheStrangestFrameSinceTheLastLook) {
  Peak peak;
  for (const double deviation : {1.0, 3.5, 0.5}) peak.see(deviation);
  EXPECT_EQ(peak.take(), 3.5);
  peak.see(0.5);
  EXPECT_EQ(peak.take(), 0.5);
}

TEST(HealthJson, AStreamStallsByItsOwnPace) {
  const auto stalled = [](double period, double silence) {
    Trend trend;
    Snapshot s = snapshot();
    const auto at = [](double seconds) {
      return Clock::time_point() + std::chrono::milliseconds(std::llround(1e3 * seconds));
    };
    for (s.frames.trained = 0; s.frames.trained <= 10; ++s.frames.trained)
      trend.add(s, at(period * double(s.frames.trained)));
    --s.frames.trained;
    return trend.add(s, at(10 * period + silence)).stalled;
  };
  EXPECT_FALSE(stalled(0.04, 2));
  EXPECT_TRUE(stalled(0.04, 4));
  EXPECT_FALSE(stalled(10, 40)) << "a picture every ten seconds";
  EXPECT_TRUE(stalled(10, 60));
}

std::string status_of(const Live& live) {
  const Health health = health_json(live);
  return json::parse(health.text)["status"].get<std::string>() + (health.ok ? " 200" : " 503");
}

TEST(HealthJson, AStreamOfTargetsThatIsAwayIsTold) {
  Trend trend;
  Clock::time_point now{};
  Snapshot s = snapshot();
  s.state["task"] = "stream";
  const auto status = [&] { return status_of(trend.add(s, now += std::chrono::seconds(6))); };
  for (s.frames.trained = 5; s.frames.trained < 8; ++s.frames.trained)
    EXPECT_EQ(status(), "ok 200");
  for (s.frames.without_target = 9; s.frames.without_target < 12; ++s.frames.without_target)
    status();
  EXPECT_EQ(status(), "no targets 503");
  ++s.frames.trained;
  EXPECT_EQ(status(), "ok 200");
}

TEST(HealthJson, SaysWhatIsWrong) {
  Trend trend;
  Clock::time_point now{};
  Snapshot s = snapshot();
  const auto status = [&] { return status_of(trend.add(s, now += std::chrono::seconds(6))); };
  s.frames.trained = 0;
  EXPECT_EQ(status(), "starting 503");
  s.frames.trained = 5;
  EXPECT_EQ(status(), "ok 200");
  EXPECT_EQ(status(), "stalled 503");
  s.state["controls"]["paused"] = true;
  EXPECT_EQ(status(), "paused 200");
  s.state["controls"]["paused"] = false;
  s.state["stream"]["connected"] = false;
  EXPECT_EQ(status(), "source away 503");
  s.state["stream"] = {{"connected", true}, {"reconnects", 1}};
  EXPECT_EQ(status(), "stalled 503");
  s.frames.trained = 9;
  EXPECT_EQ(status(), "ok 200");
  s.frames.trained = 10;
  const std::string trouble = "checkpoint: kept: No space left on device";
  s.state["controls"]["trouble"] = trouble;
  EXPECT_EQ(status(), "not saving 503");
  EXPECT_EQ(json::parse(health_json(trend.live()).text)["trouble"], trouble);
  EXPECT_NE(metrics_text(s, 0).find("millrace_write_trouble 1"), std::string::npos);
  s.state["controls"]["trouble"] = "";
  EXPECT_EQ(status(), "ok 200");
}

TEST(Obey, RefusesWhatIsNoCommandOrNotOffered) {
  Controls controls({.set_learning_rate = [](double) { FAIL(); }});
  for (const char* wrong :
       {"", "[]", "{}", "{", R"({"action": "stop"})", R"({"action": 1})",
        R"({"learning_rate": "1"})", R"({"learning_rate": -1})", R"({"learning_rate": 1e9})",
        R"({"rate": 1})", R"({"action": "save", "learning_rate": 1})"})
    EXPECT_NE(obey(wrong, controls), "") << wrong;
  Controls none({.pause = false, .save = false});
  for (const char* refused : {R"({"action": "pause"})", R"({"action": "save"})",
                              R"({"learning_rate": 1})", R"({"label": "day"})"})
    EXPECT_NE(obey(refused, none), "") << refused;
  EXPECT_FALSE(controls.take_save() || controls.paused() || none.take_save() || none.paused());
}

TEST(Metrics, CountersAndHistograms) {
  const std::string text = metrics_text(snapshot(), 4);
  for (const std::string line :
       {"# TYPE millrace_frames_trained_total counter", "millrace_frames_trained_total 7",
        "millrace_unexpected_frames_total 12", "millrace_unexpected_events_total 3",
        "millrace_loss_deviation 4.5", "millrace_learning_rate 0.0005",
        "millrace_roll_backs_total 2", "# TYPE millrace_stage_seconds histogram",
        R"(millrace_stage_seconds_bucket{stage="0",device="cpu:0",le="0.008192"} 0)",
        R"(millrace_stage_seconds_bucket{stage="0",device="cpu:0",le="0.016384"} 5)",
        R"(millrace_stage_seconds_bucket{stage="0",device="cpu:0",le="+Inf"} 5)",
        R"(millrace_stage_seconds_count{stage="0",device="cpu:0"} 5)",
        R"(millrace_updates_total{stage="1",device="odd \"one\"\n"} 0)",
        "millrace_latency_seconds_count 7", R"(millrace_loss{predictor="network"} 0.123456789)",
        R"(millrace_events_by_reason_total{reason="local"} 2)", "millrace_write_trouble 0",
        "millrace_checkpoints_failed_total 2", "millrace_viewers 4"})
    EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << line << "\n" << text;
  EXPECT_EQ(text.find("millrace_psnr_db"), std::string::npos) << "targets are no pictures";
  EXPECT_EQ(text.find("secret"), std::string::npos);
}

}  // namespace
}  // namespace millrace::page
