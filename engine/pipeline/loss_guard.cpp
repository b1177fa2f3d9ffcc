#include "engine/pipeline/loss_guard.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace millrace::engine {
namespace {

constexpr double kFactor = 10;                           // over the usual loss
constexpr double kBeganFactor = 2;                       // over the first loss
constexpr double kSceneFactor = 3;                       // over the mean frame's error
constexpr std::int64_t kEnough = 20;                     // losses in a usable history
constexpr int kNotFinite = 4;                            // in a row: the weights are at fault
constexpr double kNoMatter = 1e-4;                       // a loss this low, and
constexpr double kNoMatterOfBegan = 1e-2;                // this share of the first, are harmless
constexpr double kLeastLoss = 1e-7, kLeastError = 1e-6;  // floors: smaller values count as these

constexpr std::size_t kElements = 1024;  // elements of a frame that SceneWatch compares
constexpr std::int64_t kMemory = 200;    // frames in its mean
constexpr float kDecay = 0.9f;           // of a change: frames may come twice

bool measures(const LossGuard::State& is) {
  return is.known >= kEnough;
}

template <class Value>
double median_of(std::int64_t count, const Value& value) {
  std::array<float, LossGuard::kHistory> sorted{};
  for (std::int64_t i = 0; i < count; ++i) sorted[std::size_t(i)] = value(std::size_t(i));
  const auto middle = sorted.begin() + count / 2;
  std::nth_element(sorted.begin(), middle, sorted.begin() + count);
  return *middle;
}

/// The median over the reference losses' moments of `value(moment)`.
template <class Value>
double usual(const LossGuard::State& is, const Value& value) {
  const std::int64_t count = std::min<std::int64_t>(is.known, LossGuard::kHistory);
  return median_of(count, [&](std::size_t i) { return value(is.history[i]); });
}

double usual_loss(const LossGuard::State& is) {
  const double loss = measures(is) ? usual(is, std::mem_fn(&LossGuard::Moment::loss)) : is.began;
  return std::max(loss, kLeastLoss);
}

bool raised(const LossGuard::State& is, double loss, const SceneErrors& scene) {
  if (loss <= std::max(kNoMatter, kNoMatterOfBegan * is.began)) return false;
  if (measures(is) && loss > kFactor * usual_loss(is)) return true;
  return loss > kBeganFactor * std::max(is.began, kLeastLoss) &&
         loss > kSceneFactor * std::max(scene.input, scene.target);
}

bool excused(const LossGuard::State& is, double loss, const SceneErrors& scene) {
  if (!measures(is)) return false;
  const double times = loss / usual_loss(is);
  const auto excuses = [&](float SceneErrors::*error) {
    const double now = scene.*error;
    const double before =
        usual(is, [&](const LossGuard::Moment& then) { return then.scene.*error; });
    const double rise = now / std::max(before, kLeastError);
    return rise >= times || (rise > 2 && now >= loss);
  };
  return excuses(&SceneErrors::input) || excuses(&SceneErrors::target) ||
         (excuses(&SceneErrors::change) && scene.change > loss / kFactor);
}

std::int64_t frame_of(const SampleInfo& sample) {
  return sample.frame < 0 ? sample.sample : sample.frame;
}

/// Whether the last three losses are raised.
bool leaps(const LossGuard::State& is) {
  constexpr std::int64_t kFew = 3;
  if (is.seen < kFew) return false;
  for (std::int64_t n = is.seen - kFew; n < is.seen; ++n) {
    const LossGuard::Moment& now = is.recent[std::size_t(n % LossGuard::kRecent)];
    if (!raised(is, now.loss, now.scene) || excused(is, now.loss, now.scene)) return false;
  }
  return true;
}

void remember(LossGuard::State& is, const LossGuard::Moment& now) {
  is.not_finite = 0;
  if (is.began < 0) is.began = now.loss;
  // The history starts where the recent losses end, and is frozen while they are raised.
  LossGuard::Moment& slot = is.recent[std::size_t(is.seen % LossGuard::kRecent)];
  if (is.seen >= LossGuard::kRecent && is.raised_for == 0)
    is.history[std::size_t(is.known++ % LossGuard::kHistory)] = slot;
  slot = now;
  ++is.seen;
}

void measure_by(LossGuard::State& is, double loss) {
  is.began = loss;
  is.known = is.raised_for = 0;
  is.excused_until = 0;
}

}  // namespace

template <class Element>
SceneWatch::Errors SceneWatch::Frames::compare(std::span<const Element> frame, float scale,
                                               bool learns) {
  if (frame.empty()) return {};
  const std::size_t stride = std::max<std::size_t>(1, frame.size() / kElements);
  const std::size_t count = std::min(kElements, frame.size() / stride);
  mean_.resize(count);
  previous_.resize(count);
  const auto at = [&](std::size_t i) { return scale * float(frame[i * stride]); };
  const auto error_of = [&](const std::vector<float>& prediction) {
    float sum = 0;
    for (std::size_t i = 0; i < count; ++i)
      sum += (at(i) - prediction[i]) * (at(i) - prediction[i]);
    return seen_ == 0 && std::isfinite(sum) ? 0 : sum / float(count);
  };
  const auto surprise = [&] {
    const auto seen = float(std::min(seen_, kMemory));
    float sum = 0, told = 0;
    for (std::size_t i = 0; i < count; ++i) {  // as if half a frame had shown each class
      sum -= at(i) * std::log((mean_[i] * seen + 0.5f) / (seen + 1));
      told += at(i);
    }
    return told > 0 && seen_ > 0 ? sum / told : 0;
  };
  const float error = classes_ ? surprise() : error_of(mean_);
  if (!std::isfinite(error)) return last_;  // a broken frame says nothing about the scene
  if (!learns) return {error, last_.change};
  last_ = {error, std::max(error_of(previous_), kDecay * last_.change)};
  const float share = 1.0f / float(std::min(++seen_, kMemory));
  for (std::size_t i = 0; i < count; ++i) {
    mean_[i] += share * (at(i) - mean_[i]);
    previous_[i] = at(i);
  }
  return last_;
}

void SceneWatch::see(Sample& sample, bool target) {
  constexpr float kByte = 1.0f / 255.0f;
  const bool learns = !sample.info.replayed;
  const auto compare = [&](Frames& with, std::span<float> floats, std::span<std::uint8_t> bytes) {
    return floats.empty() ? with.compare(std::span<const std::uint8_t>(bytes), kByte, learns)
                          : with.compare(std::span<const float>(floats), 1.0f, learns);
  };
  const Errors input = compare(input_, sample.input(), sample.input_bytes());
  sample.info.scene = {.input = input.mean, .change = input.change};
  if (target && !sample.memory()[1].empty())
    sample.info.scene.target = compare(target_, sample.target(), sample.target_bytes()).mean;
}

SceneErrors SceneWatch::see(std::span<const float> input, std::span<const float> target) {
  const Errors of_input = input_.compare(input, 1.0f, true);
  return {of_input.mean, target_.compare(target, 1.0f, true).mean, of_input.change};
}

void LossGuard::go_on_from(const State& state, const Status& status) {
  is_ = state;
  mirror(status);
}

void LossGuard::mirror(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (status.judged >= status_.judged) status_ = status;
}

bool LossGuard::proved(const Status& then) const {
  const Status now = status();
  return now.roll_backs == then.roll_backs && now.judged >= then.judged + window();
}

bool LossGuard::disproved(const Status& then) const {
  return roll_backs() != then.roll_backs || then.astray;
}

Alarm LossGuard::judge(const SampleInfo& sample, float loss) {
  const Alarm alarm = sample.has_target ? verdict(sample, loss) : Alarm::none;
  const bool counted = sample.sample < is_.discard_until;
  const bool diverges = is_.not_finite > 1 || leaps(is_);
  const std::lock_guard lock(mutex_);
  status_.astray = counted || diverges;
  status_.due = diverges && !counted && is_.began >= 0;
  if (status_.due) {
    const Moment& latest = is_.recent[std::size_t((is_.seen + kRecent - 1) % kRecent)];
    status_.due_frame = frame_of(sample);
    status_.due_loss = is_.not_finite > 1 ? std::numeric_limits<double>::quiet_NaN() : latest.loss;
    status_.due_median = usual_loss(is_);
  }
  status_.judged = sample.sample + 1;
  return alarm;
}

bool LossGuard::end() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(status_.due, false)) {
    count_roll_back(status_.due_frame, status_.due_loss, status_.due_median,
                    status_.judged + kProbe);
  }
  return std::exchange(status_.astray, false);
}

Alarm LossGuard::verdict(const SampleInfo& sample, float loss) {
  if (sample.sample < is_.discard_until) return discard(sample, loss);
  if (!std::isfinite(loss)) {
    if (++is_.not_finite < kNotFinite) return Alarm::discard;
    if (is_.began < 0) {
      throw std::runtime_error("guard: the first " + std::to_string(kNotFinite) +
                               " losses were not finite, so there are no good weights to return "
                               "to: start from other weights");
    }
    return roll_back(sample, loss);
  }
  remember(is_, {loss, sample.scene});
  return look(sample);
}

Alarm LossGuard::look(const SampleInfo& sample) {
  if (is_.seen < kRecent) return Alarm::none;
  const double loss = median_of(kRecent, [&](std::size_t i) { return is_.recent[i].loss; });
  SceneErrors scene;
  for (const Moment& moment : is_.recent) {
    for (const auto error : {&SceneErrors::input, &SceneErrors::target, &SceneErrors::change})
      scene.*error = std::max(scene.*error, moment.scene.*error);
  }
  if (!raised(is_, loss, scene)) {
    is_.raised_for = 0;
    return Alarm::none;
  }
  if (excused(is_, loss, scene)) is_.excused_until = sample.sample + kHistory / 2;
  if (sample.sample >= is_.excused_until) return roll_back(sample, loss);
  if (++is_.raised_for >= kHistory) measure_by(is_, loss);
  return Alarm::none;
}

Alarm LossGuard::discard(const SampleInfo& sample, float loss) {
  if (sample.sample >= is_.discard_until - kProbe && std::isfinite(loss))
    is_.probe[std::size_t(is_.probed++)] = loss;
  if (sample.sample + 1 < is_.discard_until || is_.probed == 0) return Alarm::discard;
  const double shown = median_of(is_.probed, [&](std::size_t i) { return is_.probe[i]; });
  if (raised(is_, shown, sample.scene)) measure_by(is_, shown);
  return Alarm::discard;
}

Alarm LossGuard::roll_back(const SampleInfo& sample, double loss) {
  const std::lock_guard lock(mutex_);
  count_roll_back(frame_of(sample), loss, usual_loss(is_), sample.sample + 1 + in_flight_ + kProbe);
  return Alarm::roll_back;
}

void LossGuard::count_roll_back(std::int64_t frame, double loss, double median,
                                std::int64_t discard_until) {
  ++status_.roll_backs;
  status_.last_frame = frame;
  status_.last_loss = loss;
  status_.last_median = median;
  is_.seen = is_.excused_until = 0;
  is_.not_finite = is_.raised_for = is_.probed = 0;
  is_.discard_until = discard_until;
}

}  // namespace millrace::engine
