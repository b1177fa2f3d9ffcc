#include "tests/page/invented_run.h"

#include <algorithm>  // copies
#include <chrono>     // the rate
#include <cmath>      // learning

#include "io/source/frame.h"

namespace millrace::page {
namespace {

using io::Clock;

constexpr int kRecent = 100;  // frames the losses are averaged over

io::PictureShape shape(const InventedOptions& options) {
  return {.channels = 3, .height = options.size, .width = options.size};
}

double mean_square(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i] - b[i]) * (a[i] - b[i]);
  return sum / double(a.size());
}

// A running mean that begins as a plain one.
void average(double& mean, double value, std::int64_t count) {
  mean += (value - mean) / double(std::min<std::int64_t>(count, kRecent));
}

}  // namespace

InventedRun::InventedRun(const InventedOptions& options)
    : options_(options),
      scene_({.width = options.size, .height = options.size, .speed = 1.5}),
      compute_(std::size_t(options.stages)),
      handoff_(std::size_t(options.stages)),
      board_(shape(options), shape(options)) {
  const std::size_t elements = shape(options).elements();
  for (auto* picture : {&input_, &target_, &prediction_, &mean_, &blurred_}) {
    picture->assign(elements, 0.0f);
  }
  now_.version = "0.1.0";
  now_.source = "rtsp://viewer:secret@camera.example/street";
  now_.task = "next-frame";
  now_.schedule = "partime";
  now_.F = options.fps;
  now_.budget = 1e3 / options.fps;
  now_.learning_rate = 0.003;
  now_.stages.resize(std::size_t(options.stages));
  for (int i = 0; i < options.stages; ++i) {
    now_.stages[std::size_t(i)].device = "cpu:" + std::to_string(i);
    if (i > 0) now_.cut.push_back(5 * i);
  }
  thread_ = std::thread([this] { train(); });
}

InventedRun::~InventedRun() {
  stop_ = true;
  thread_.join();
}

io::Snapshot InventedRun::look() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

void InventedRun::set_connected(bool connected) {
  if (connected_.exchange(connected) == connected) return;
  const std::lock_guard lock(mutex_);
  now_.stream.connected = connected;
  ++(connected ? now_.stream.reconnects : now_.stream.breaks);
  now_.stream.frames_since = 0;
  now_.stream.last_error = "rtsp://viewer:secret@camera.example/street: no picture for 2.5 s";
}

void InventedRun::train() {
  for (Clock::time_point due = Clock::now(); !stop_;) {
    due += std::chrono::nanoseconds(std::int64_t(1e9 / options_.fps));
    std::this_thread::sleep_until(due);
    obey();
    if (connected_) step();
  }
}

void InventedRun::obey() {
  const std::lock_guard lock(mutex_);
  now_.paused = controls_.paused();
  if (const auto rate = controls_.take_learning_rate()) {
    now_.learning_rate = *rate;
    now_.notice = "learning rate changed at frame " + std::to_string(now_.trained);
  }
  if (controls_.take_save()) {
    ++now_.saves;
    now_.notice = "saved at frame " + std::to_string(now_.trained);
  }
}

void InventedRun::step() {
  bool paused;
  {
    const std::lock_guard lock(mutex_);
    ++now_.received;
    ++now_.stream.frames_since;
    paused = now_.paused;
    // Now and then a frame comes while the one before it still waits.
    const bool late = random_() % 90 == 0;
    if (paused || late) ++now_.dropped;
    if (late && !paused) return;
  }
  if (paused) return;
  input_.swap(target_);
  scene_.draw(++number_, bytes_);
  const std::size_t plane = bytes_.size() / 3;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    target_[i % 3 * plane + i / 3] = float(bytes_[i]) / 255.0f;
  }
  draw_prediction();
  note_losses();
  note_times();
  if (io::Pictures* const room = board_.room()) {
    std::copy(input_.begin(), input_.end(), room->input.begin());
    std::copy(target_.begin(), target_.end(), room->target.begin());
    std::copy(prediction_.begin(), prediction_.end(), room->prediction.begin());
    board_.show(number_);
  }
}

// A share of the target, the rest the mean frame, and less and less of a blur along the rows.
void InventedRun::draw_prediction() {
  learned_ += (1 - learned_) / (40 * options_.fps);
  const float share = float(0.15 + 0.6 * learned_);
  const int reach = 1 + int(3 * (1 - learned_));
  const int width = options_.size;
  for (std::size_t i = 0; i < target_.size(); ++i) {
    const int x = int(i % std::size_t(width));
    const int from = std::max(-reach, -x), to = std::min(reach, width - 1 - x);
    float sum = 0;
    for (int d = from; d <= to; ++d) sum += target_[i + std::size_t(std::ptrdiff_t(d))];
    const float mist = sum / float(to - from + 1);
    blurred_[i] = mist + float(learned_) * (target_[i] - mist);
  }
  for (std::size_t i = 0; i < target_.size(); ++i) {
    prediction_[i] = share * blurred_[i] + (1 - share) * mean_[i];
    mean_[i] += (target_[i] - mean_[i]) / float(number_);
  }
}

void InventedRun::note_losses() {
  const double loss = mean_square(prediction_, target_);
  const double mean_frame = mean_square(mean_, target_);
  const std::lock_guard lock(mutex_);
  ++now_.trained;
  now_.loss_last = loss;
  average(now_.loss_recent, loss, now_.trained);
  average(now_.mean_frame_recent, mean_frame, now_.trained);
}

void InventedRun::note_times() {
  const std::lock_guard lock(mutex_);
  std::normal_distribution<double> varies(1.0, 0.06);
  const double budget = now_.budget * 1e-3;
  now_.T = now_.bottleneck = 0;
  double latency = 0.003 + (random_() % 60 == 0 ? budget * double(random_() % 100) / 100 : 0);
  for (int i = 0; i < options_.stages; ++i) {
    const auto at = std::size_t(i);
    io::StageState& stage = now_.stages[at];
    const double drift = 1 + 0.05 * std::sin(double(number_) / (200 + 60 * i));
    const double compute =
        budget * (0.5 + 0.12 * ((i * 2 + 1) % 4)) * drift * std::abs(varies(random_));
    const double handoff = budget * 0.02 * std::abs(varies(random_));
    compute_[at].add(compute);
    handoff_[at].add(handoff);
    stage.busy.add(compute + handoff);
    stage.compute_ms = compute_[at].quantile(0.5) * 1e3;
    stage.handoff_ms = handoff_[at].quantile(0.5) * 1e3;
    stage.busy_ms = stage.busy.quantile(0.5) * 1e3;
    stage.gradient_age = 2 * (options_.stages - 1 - i);
    stage.updates = std::max<std::int64_t>(0, now_.trained - stage.gradient_age);
    stage.misses += compute + handoff > budget;
    now_.T += stage.compute_ms;
    if (stage.busy_ms > now_.bottleneck) {
      now_.bottleneck = stage.busy_ms;
      now_.bottleneck_stage = i;
    }
    latency += i + 1 < options_.stages ? budget : compute;
  }
  now_.T_over_N = now_.T / options_.stages;
  now_.holds = now_.bottleneck <= now_.budget;
  now_.latency.add(latency);
  now_.latency_p50 = now_.latency.quantile(0.5) * 1e3;
  now_.latency_p99 = now_.latency.quantile(0.99) * 1e3;
  now_.latency_max = std::max(now_.latency_max, latency * 1e3);
  now_.step_p50 = now_.budget;
  now_.step_p99 = now_.budget * 1.1;
  now_.speedup_K = now_.T / now_.step_p50;
}

}  // namespace millrace::page
