#include "tests/page/invented_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "io/source/frame.h"

namespace millrace::page {
namespace {

using io::Clock;

constexpr int kRecent = 100;  // frames the losses are averaged over

PictureShape shape(const InventedOptions& options) {
  return {.channels = 3, .height = options.size, .width = options.size};
}

PictureShape class_shape(const InventedOptions& options) {
  return {.channels = 1, .height = options.size, .width = options.size, .classes = true};
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

void record(engine::Histogram& histogram, double seconds) {
  histogram.record(std::int64_t(1e9 * seconds));
}

}  // namespace

InventedRun::InventedRun(const InventedOptions& options)
    : options_(options),
      scene_(io::synth_scene({.width = options.size, .height = options.size, .speed = 1.5})),
      compute_(std::size_t(options.stages)),
      handoff_(std::size_t(options.stages)),
      board_(shape(options), options.classes > 0 ? class_shape(options) : shape(options)) {
  const std::size_t elements = shape(options).elements();
  for (auto* picture : {&input_, &target_, &prediction_, &mean_}) {
    picture->assign(elements, 0.0f);
  }
  now_.version = "0.1.0";
  now_.source = "rtsp://viewer:secret@camera.example/street";
  now_.task = "next-frame";
  now_.schedule = "partime";
  for (int i = 0; i < options.classes; ++i) now_.classes.push_back("class " + std::to_string(i));
  now_.reading.F = options.fps;
  now_.reading.budget = 1e3 / options.fps;
  now_.learning_rate = 0.003;
  now_.stages.resize(std::size_t(options.stages));
  engine::Reading& r = now_.reading;
  for (auto* times : {&r.stage, &r.handoff, &r.stage_busy}) times->resize(now_.stages.size());
  for (auto* counts : {&r.updates, &r.misses, &r.gradient_age}) counts->resize(now_.stages.size());
  for (int i = 0; i < options.stages; ++i) {
    page::StageState& stage = now_.stages[std::size_t(i)];
    stage.device = "cpu:" + std::to_string(i);
    stage.units = 128;
    stage.dead = 32 * i;
    r.misses[std::size_t(i)] = 98765 * i;
    if (i > 0) now_.cut.push_back(5 * i);
  }
  thread_ = std::thread([this] { train(); });
}

InventedRun::~InventedRun() {
  stop_ = true;
  thread_.join();
}

Snapshot InventedRun::look() const {
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
  now_.label = labels_.now();
  if (const auto rate = controls_.take_learning_rate()) {
    now_.learning_rate = *rate;
    now_.notice = "learning rate changed at frame " + std::to_string(now_.frames.trained);
  }
  if (controls_.take_save()) {
    ++now_.saves;
    now_.notice = "saved at frame " + std::to_string(now_.frames.trained);
  }
}

void InventedRun::step() {
  bool paused;
  {
    const std::lock_guard lock(mutex_);
    ++now_.frames.received;
    ++now_.stream.frames_since;
    paused = now_.paused;
    // Now and then a frame comes while the one before it still waits.
    const bool late = random_() % 90 == 0;
    if (paused || late) ++now_.frames.dropped;
    if (late && !paused) return;
  }
  if (paused) return;
  input_.swap(target_);
  scene_(++number_, bytes_);
  const std::size_t plane = bytes_.size() / 3;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    target_[i % 3 * plane + i / 3] = float(bytes_[i]) / 255.0f;
  }
  draw_prediction();
  note_losses();
  note_times();
  show();
}

void InventedRun::show() {
  Pictures* const room = board_.room();
  if (!room) return;
  // Of classes, the channel that there is tells them.
  const auto copy = [&](const std::vector<float>& from, std::vector<float>& to, int classes) {
    std::copy_n(from.begin(), to.size(), to.begin());
    for (float& value : to) value = classes > 0 ? std::floor(value * float(classes)) : value;
  };
  copy(input_, room->input, 0);
  copy(target_, room->target, options_.classes);
  copy(prediction_, room->prediction, options_.classes);
  board_.show(number_);
}

// A share of the target that grows, and the mean frame for the rest.
void InventedRun::draw_prediction() {
  learned_ += (1 - learned_) / (40 * options_.fps);
  const float share = float(0.15 + 0.8 * learned_);
  for (std::size_t i = 0; i < target_.size(); ++i) {
    prediction_[i] = share * target_[i] + (1 - share) * mean_[i];
    mean_[i] += (target_[i] - mean_[i]) / float(number_);
  }
}

void InventedRun::note_losses() {
  const double loss = mean_square(prediction_, target_);
  const double mean_frame = mean_square(mean_, target_);
  const std::lock_guard lock(mutex_);
  ++now_.frames.trained;
  now_.loss_last = loss;
  average(now_.loss_recent, loss, now_.frames.trained);
  average(now_.mean_frame_recent, mean_frame, now_.frames.trained);
}

void InventedRun::note_times() {
  const std::lock_guard lock(mutex_);
  std::normal_distribution<double> varies(1.0, 0.06);
  engine::Reading& r = now_.reading;
  const double budget = r.budget * 1e-3;
  r.T = r.bottleneck = 0;
  double latency = 0.003 + (random_() % 60 == 0 ? budget * double(random_() % 100) / 100 : 0);
  for (int i = 0; i < options_.stages; ++i) {
    const auto at = std::size_t(i);
    StageState& stage = now_.stages[at];
    const double drift = 1 + 0.05 * std::sin(double(number_) / (200 + 60 * i));
    const double compute =
        budget * (0.5 + 0.12 * ((i * 2 + 1) % 4)) * drift * std::abs(varies(random_));
    const double handoff = budget * 0.02 * std::abs(varies(random_));
    record(compute_[at], compute);
    record(handoff_[at], handoff);
    record(stage.busy, compute + handoff);
    r.stage[at] = compute_[at].median_ms();
    r.handoff[at] = handoff_[at].median_ms();
    r.stage_busy[at] = stage.busy.median_ms();
    r.gradient_age[at] = 2 * (options_.stages - 1 - i);
    r.updates[at] = std::max<std::int64_t>(0, now_.frames.trained - r.gradient_age[at]);
    r.misses[at] += compute + handoff > budget;
    r.T += r.stage[at];
    if (r.stage_busy[at] > r.bottleneck) {
      r.bottleneck = r.stage_busy[at];
      r.bottleneck_stage = i;
    }
    latency += i + 1 < options_.stages ? budget : compute;
  }
  r.T_over_N = r.T / options_.stages;
  r.holds = now_.verdict.holds = r.bottleneck <= r.budget;
  now_.verdict.judged = true;
  record(now_.latency, latency);
  r.latency_p50 = now_.latency.median_ms();
  r.latency_p99 = now_.latency.quantile_ms(0.99);
  r.latency_max = now_.latency.max_ms();
  r.step_p50 = r.budget;
  r.step_p99 = r.budget * 1.1;
  r.speedup_K = r.T / r.step_p50;
}

}  // namespace millrace::page
