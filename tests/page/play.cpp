// Serves an invented run, to develop and test the page with.
//   page_play SERVE TOKEN CLASSES SNAPSHOTS
// Prints its URL, then takes a command a line from stdin until that ends: "event REASON", "fail",
// "work", or JSON that is merged into the state. Answers each with the numbers of frames trained
// and pictures shown.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "engine/format.h"
#include "io/files/whole_file.h"
#include "io/plot/plot.h"
#include "io/source/labels.h"
#include "tools/page/server.h"

namespace millrace::page {
namespace {

constexpr int kStages = 4, kSide = 64;
constexpr double kFps = 25, kBudget = 1 / kFps;  // seconds

Json first_state() {
  return Json::parse(R"({
    "version": "0.1.0", "source": "rtsp://viewer:secret@camera.example/street",
    "task": "next-frame", "classes": [], "schedule": "partime", "cut": [5, 10, 15],
    "correction": "none", "local_note": "",
    "frames": {"rejected": 0, "in_flight": 0, "predicted_only": 0, "replayed": 0, "before": 0},
    "loss": {"last": 0.1, "recent": 0.1, "mean_frame": {"recent": 0.1},
             "last_frame": {"recent": 0.05}, "linear": {"recent": null}},
    "learned": {"yes": false, "strongest": "last frame", "times": 0.5},
    "accuracy": null, "iou": null,
    "psnr_db": {"recent": 20, "mean_frame": {"recent": 18}, "last_frame": {"recent": 21}},
    "novelty": {"unexpected": 0, "events": 0, "deviation": 0.5, "in_event": false, "threshold": 4,
                "taught": []},
    "zones": [{"name": "door", "points": [[0.1, 0.1], [0.5, 0.1], [0.5, 0.6]], "sensitivity": 1}],
    "ignore": [[[0.7, 0], [1, 0], [1, 0.3]]],
    "guard": {"roll_backs": 0, "last_frame": null, "rate": 1}, "learning_rate": 0.003,
    "realtime": {"judged": true, "holds": true, "reason": ""},
    "stream": {"connected": true, "breaks": 0, "reconnects": 0, "frames_since": 0,
               "lost_upstream": 0, "last_error": ""},
    "controls": {"paused": false, "learning_rate": 0.003, "saves": 0, "failed_saves": 0,
                 "trouble": "", "notice": "", "label": null}})");
}

/// Learns nothing, at a fixed rate. Its pictures are waves that move.
class InventedRun {
 public:
  InventedRun(int classes, std::string snapshots)
      : classes_(classes),
        snapshots_(std::move(snapshots)),
        board_({.channels = 3, .height = kSide, .width = kSide}, {.channels = classes > 0 ? 1 : 3,
                                                                  .height = kSide,
                                                                  .width = kSide,
                                                                  .classes = classes > 0}) {
    constexpr const char* kColours[] = {"#000000", "#800000", "#008000", "#808000"};
    now_.state = first_state();
    for (int i = 0; i < classes; ++i)
      now_.state["classes"].push_back(
          {{"name", "class " + std::to_string(i)}, {"colour", kColours[i]}});
    now_.busy.resize(kStages);
    labels_.remember(std::chrono::hours(1));
    step();
    thread_ = std::thread([this] { train(); });
  }
  ~InventedRun() {
    stop_ = true;
    thread_.join();
  }

  // Any thread.
  WebSubject subject() {
    return {.look =
                [this] {
                  if (fails) throw std::bad_alloc();
                  return look();
                },
            .pictures = &board_,
            .camera = &camera_,
            .controls = &controls_,
            .snapshots = snapshots_,
            .event_picture = snapshots_.empty() ? &event_board_ : nullptr,
            .is_normal = [this](std::int64_t event) { return is_normal(event); }};
  }
  Snapshot look() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  std::int64_t shown() const { return shown_; }
  void change(const Json& parts) {
    const std::lock_guard lock(mutex_);
    now_.state.update(parts, true);
  }
  /// An event begins: "local".
  void begin_event(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    Json& novelty = now_.state["novelty"];
    const int number = novelty["events"].get<int>() + 1;
    novelty["events"] = number;
    novelty["in_event"] = event_began_ = true;
    novelty["last"] = {{"kind", "unexpected"},
                       {"event", number},
                       {"frame", now_.frames.trained},
                       {"time", 1767322345.0 + number},
                       {"reason", reason},
                       {"zone", "door"},
                       {"deviation", 5.25}};
    if (reason == "local")
      novelty["last"].update({{"box", {10, 20, 16, 12}}, {"size", {kSide, kSide}}});
    if (!snapshots_.empty()) write_snapshot(number, novelty["last"].dump());
  }

  std::atomic<bool> fails{false};  ///< as when memory is short for a moment

 private:
  bool is_normal(std::int64_t event) {
    const std::lock_guard lock(mutex_);
    now_.state["novelty"]["taught"].push_back(event);
    return event != 1;
  }
  void write_snapshot(int number, const std::string& about) {
    io::Frame frame;
    frame.reshape(kSide, kSide, 3);
    for (std::size_t i = 0; i < frame.pixels.size(); ++i) frame.pixels[i] = std::uint8_t(i * 7);
    const std::string path =
        snapshots_ + engine::format("/20260102T0304%02dZ-event-%d-frame-%lld", number, number,
                                    static_cast<long long>(number));
    io::write_whole(path + ".json", about);
    io::write_strip("Unexpected",
                    {{"input", "", frame}, {"prediction", "", frame}, {"error", "", frame}},
                    path + ".png");
  }
  void train() {
    for (io::Clock::time_point due = io::Clock::now(); !stop_;) {
      due += std::chrono::nanoseconds(std::int64_t(1e9 / kFps));
      std::this_thread::sleep_until(due);
      const std::lock_guard lock(mutex_);
      obey();
      if (now_.state["stream"]["connected"] == true) step();
    }
  }
  void obey() {
    Json& controls = now_.state["controls"];
    const std::string label = labels_.now();
    controls["paused"] = controls_.paused();
    controls["label"] = label.empty() ? Json() : Json(label);
    if (controls_.take_save()) {
      controls["saves"] = controls["saves"].get<int>() + 1;
      controls["notice"] = "saved at frame " + std::to_string(now_.frames.trained);
    }
  }
  void step() {
    engine::FrameCounts& frames = now_.frames;
    Json& state = now_.state;
    const bool targets = state["realtime"]["judged"] == true;
    ++(controls_.paused() ? frames.dropped : targets ? frames.trained : frames.rejected);
    frames.without_target += !controls_.paused() && !targets;
    ++frames.received;
    state["frames"].update(
        {{"received", frames.received}, {"trained", frames.trained}, {"dropped", frames.dropped}});
    if (controls_.paused()) return;
    const double varies = 1 + 0.1 * std::sin(double(frames.trained));
    state["novelty"]["deviation"] = 1 + std::sin(double(frames.received) / 9);
    state["loss"]["last"] = state["loss"]["recent"] = 0.1 / (1 + double(frames.trained) / kFps);
    const double slower = 1 + 0.3 * std::sin(double(frames.trained) / 50);
    now_.latency.record(std::int64_t(4e9 * kBudget * varies * slower));
    double sum = 0;
    Json stages;
    for (int i = 0; i < kStages; ++i) {
      const double busy = kBudget * (0.5 + 0.1 * i) * varies;
      now_.busy[std::size_t(i)].record(std::int64_t(1e9 * busy));
      sum += 1e3 * busy;
      stages.push_back({{"device", "cpu:" + std::to_string(i)},
                        {"replicas", 1},
                        {"compute_ms", 1e3 * busy},
                        {"handoff_ms", 0.5},
                        {"busy_ms", 1e3 * busy},
                        {"updates", frames.trained},
                        {"misses", 98765 * i},
                        {"gradient_age", 2 * (kStages - 1 - i)},
                        {"dead_units", 32 * i},
                        {"units", 128}});
    }
    state["timing_ms"] = {{"T_over_N", sum / kStages},
                          {"bottleneck", stages.back()["busy_ms"]},
                          {"bottleneck_stage", kStages - 1},
                          {"step_p50", 1e3 * kBudget}};
    state["stages"] = std::move(stages);
    state["realtime"].update(Json{{"F", kFps}, {"budget_ms", 1e3 * kBudget}});
    state["latency_ms"] = {{"p50", now_.latency.median_ms()},
                           {"p99", now_.latency.quantile_ms(0.99)},
                           {"max", now_.latency.max_ms()}};
    show();
  }
  void show() {
    if (Pictures* const room = std::exchange(event_began_, false) ? event_board_.room() : nullptr) {
      std::ranges::fill(room->input, 0.6f);
      event_board_.show(now_.frames.received);
    }
    Pictures* const room = board_.room();
    if (!room) return;
    const auto draw = [&](std::vector<float>& picture, double share, int classes) {
      for (std::size_t i = 0; i < picture.size(); ++i) {
        const double wave = double(i % kSide + i / kSide + std::size_t(now_.frames.received));
        const double value = share * (0.5 + 0.5 * std::sin(wave / 7 + double(i) / 4000));
        picture[i] = float(classes > 0 ? std::floor(value * 0.99 * classes) : value);
      }
    };
    draw(room->input, 1, 0);
    draw(room->target, 1, classes_);
    draw(room->prediction, 0.8, classes_);
    board_.show(now_.frames.received);
    if (io::Frame* const frame = camera_.room()) {
      frame->reshape(4 * kSide, 3 * kSide, 3);
      for (std::size_t i = 0; i < frame->pixels.size(); ++i)
        frame->pixels[i] = std::uint8_t(i / 999 + std::size_t(now_.frames.received));
      camera_.show();
    }
    ++shown_;
  }

  const int classes_;  ///< above 0: target and prediction show this many
  const std::string snapshots_;
  FrameBoard camera_;
  PictureBoard board_;
  PictureBoard event_board_{{.channels = 3, .height = kSide, .width = kSide}, {}};
  io::LiveLabels labels_{{"day", "night"}};
  Controls controls_{{.set_learning_rate =
                          [this](double rate) {
                            const std::lock_guard lock(mutex_);
                            now_.state["controls"]["learning_rate"] = rate;
                          },
                      .labels = {"day", "night"},
                      .hear_label = [this](auto text) { return labels_.hear(text); }}};
  mutable std::mutex mutex_;
  Snapshot now_;              ///< under mutex_
  bool event_began_ = false;  ///< under mutex_
  std::atomic<std::int64_t> shown_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void play(const std::string& serve, const std::string& token, int classes,
          const std::string& snapshots) {
  InventedRun run(classes, snapshots);
  const auto server = start_server(web_options(serve, token), run.subject());
  std::printf("%s\n", server->url().c_str());
  std::fflush(stdout);
  for (std::string command; std::getline(std::cin, command);) {
    if (command == "fail" || command == "work") run.fails = command == "fail";
    if (command.starts_with("event ")) run.begin_event(command.substr(6));
    if (command.starts_with("{")) run.change(Json::parse(command));
    std::printf("%lld %lld\n", static_cast<long long>(run.look().frames.trained),
                static_cast<long long>(run.shown()));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace millrace::page

int main(int argc, char** argv) {
  try {
    if (argc != 5) throw std::invalid_argument("page_play SERVE TOKEN CLASSES SNAPSHOTS");
    millrace::page::play(argv[1], argv[2], std::stoi(argv[3]), argv[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "page_play: %s\n", error.what());
    return 1;
  }
}
