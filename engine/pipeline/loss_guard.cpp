#include "engine/pipeline/loss_guard.h"

#include <algorithm>
#include <cmath>

namespace millrace::engine {
namespace {

constexpr double kFactor = 10;                           // over the usual loss
constexpr double kBeganFactor = 2;                       // over the first loss
constexpr double kSceneFactor = 3;                       // over the mean frame's error
constexpr std::int64_t kEnough = 20;                     // losses in a usable history
constexpr int kNotFinite = 4;                            // in a row: the weights are at fault
constexpr double kLeastLoss = 1e-7, kLeastError = 1e-6;  // floors: smaller values count as these

double larger(const SceneErrors& scene) {
  return std::max(scene.input, scene.target);
}

}  // namespace

LossGuard::LossGuard(std::int64_t in_flight) : in_flight_(in_flight) {}

void LossGuard::go_on_from(const State& state, const Told& told) {
  is_ = state;
  mirror(told);
}

void LossGuard::mirror(const Told& told) {
  const std::lock_guard lock(mutex_);
  if (told.judged >= told_.judged) told_ = told;
}

bool LossGuard::proved(const Told& then) const {
  const Told now = told();
  return now.roll_backs == then.roll_backs && now.judged >= then.judged + window();
}

bool LossGuard::disproved(const Told& then) const {
  return roll_backs() != then.roll_backs || then.astray;
}

Alarm LossGuard::judge(const SampleInfo& sample, float loss) {
  const Alarm alarm = sample.has_target ? verdict(sample, loss) : Alarm::none;
  const bool astray = sample.sample < is_.discard_until || is_.not_finite > 1 || leaps();
  const std::lock_guard lock(mutex_);
  told_.astray = astray;
  told_.judged = sample.sample + 1;
  return alarm;
}

Alarm LossGuard::verdict(const SampleInfo& sample, float loss) {
  if (sample.sample < is_.discard_until) return discard(sample, loss);
  if (!std::isfinite(loss))
    return ++is_.not_finite < kNotFinite ? Alarm::discard : roll_back(sample, loss);
  remember({loss, sample.scene});
  return look(sample);
}

void LossGuard::remember(const Moment& now) {
  is_.not_finite = 0;
  if (is_.began < 0) is_.began = now.loss;
  // The history starts where the recent losses end, and is frozen while they are raised.
  Moment& slot = is_.recent[std::size_t(is_.seen % kRecent)];
  if (is_.seen >= kRecent && is_.raised_for == 0)
    is_.history[std::size_t(is_.known++ % kHistory)] = slot;
  slot = now;
  ++is_.seen;
}

Alarm LossGuard::look(const SampleInfo& sample) {
  if (is_.seen < kRecent) return Alarm::none;
  const double loss = median(kRecent, [&](std::size_t i) { return is_.recent[i].loss; });
  SceneErrors scene;
  for (const Moment& moment : is_.recent) {
    scene.input = std::max(scene.input, moment.scene.input);
    scene.target = std::max(scene.target, moment.scene.target);
  }
  if (!raised(loss, scene)) {
    is_.raised_for = 0;
    return Alarm::none;
  }
  if (excused(loss, scene)) is_.excused_until = sample.sample + kHistory / 2;
  if (sample.sample >= is_.excused_until) return roll_back(sample, loss);
  if (++is_.raised_for >= kHistory) measure_by(loss);
  return Alarm::none;
}

bool LossGuard::measures() const {
  return is_.known >= kEnough;
}

bool LossGuard::raised(double loss, const SceneErrors& scene) {
  if (measures() && loss > kFactor * usual_loss()) return true;
  return loss > kBeganFactor * std::max(is_.began, kLeastLoss) &&
         loss > kSceneFactor * larger(scene);
}

bool LossGuard::excused(double loss, const SceneErrors& scene) {
  if (!measures()) return false;
  const double times = loss / usual_loss();
  const SceneErrors usual = usual_scene();
  const auto excuses = [&](double error, double usual_error) {
    const double rise = error / std::max(usual_error, kLeastError);
    return rise >= times || (rise > 2 && error >= loss);
  };
  return excuses(scene.input, usual.input) || excuses(scene.target, usual.target);
}

Alarm LossGuard::discard(const SampleInfo& sample, float loss) {
  if (sample.sample >= is_.discard_until - kProbe && std::isfinite(loss))
    is_.probe[std::size_t(is_.probed++)] = loss;
  if (sample.sample + 1 < is_.discard_until || is_.probed == 0) return Alarm::discard;
  const double shown = median(is_.probed, [&](std::size_t i) { return is_.probe[i]; });
  if (raised(shown, sample.scene)) measure_by(shown);
  return Alarm::discard;
}

void LossGuard::measure_by(double loss) {
  is_.began = loss;
  is_.known = is_.raised_for = 0;
  is_.excused_until = 0;
}

Alarm LossGuard::roll_back(const SampleInfo& sample, double loss) {
  {
    const std::lock_guard lock(mutex_);
    ++told_.roll_backs;
    told_.last_frame = sample.frame < 0 ? sample.sample : sample.frame;
    told_.last_loss = loss;
    told_.last_median = usual_loss();
  }
  is_.seen = is_.excused_until = 0;
  is_.not_finite = is_.raised_for = is_.probed = 0;
  is_.discard_until = sample.sample + 1 + in_flight_ + kProbe;
  return Alarm::roll_back;
}

bool LossGuard::leaps() {
  constexpr std::int64_t kFew = 3;
  if (is_.seen < kFew) return false;
  for (std::int64_t n = is_.seen - kFew; n < is_.seen; ++n) {
    const Moment& moment = is_.recent[std::size_t(n % kRecent)];
    if (!raised(moment.loss, moment.scene) || excused(moment.loss, moment.scene)) return false;
  }
  return true;
}

double LossGuard::usual_loss() {
  if (!measures()) return std::max(is_.began, kLeastLoss);
  const auto loss = [&](std::size_t i) { return is_.history[i].loss; };
  return std::max(median(std::min<std::int64_t>(is_.known, kHistory), loss), kLeastLoss);
}

SceneErrors LossGuard::usual_scene() {
  const std::int64_t count = std::min<std::int64_t>(is_.known, kHistory);
  const auto input = [&](std::size_t i) { return is_.history[i].scene.input; };
  const auto target = [&](std::size_t i) { return is_.history[i].scene.target; };
  return {float(median(count, input)), float(median(count, target))};
}

template <class Value>
double LossGuard::median(std::int64_t count, const Value& value) {
  for (std::int64_t i = 0; i < count; ++i) sorted_[std::size_t(i)] = value(std::size_t(i));
  const auto middle = sorted_.begin() + count / 2;
  std::nth_element(sorted_.begin(), middle, sorted_.begin() + count);
  return *middle;
}

}  // namespace millrace::engine
