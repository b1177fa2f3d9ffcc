#include "tools/app/events/novelty.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "io/queue/planar.h"

namespace millrace::app {
namespace {

constexpr double kLooks = 10;  // per second, at least

int frames_a_look(double fps) {
  return std::max(1, int(fps / kLooks));
}

/// For each cell, by its centre: the highest of its zones, 0 outside all of them (no zones: 1
/// everywhere) and in ignored ones; times what the threshold makes of it.
Cells sensitivity(const Reduced& view, const NoveltyOptions& options) {
  Cells cells(view.rows, view.columns, options.zones.empty() ? 1.0f : 0.0f);
  for (int row = 0; row < view.rows; ++row) {
    for (int column = 0; column < view.columns; ++column) {
      float& cell = cells.at(row, column);
      const auto here = [&](const Zone& zone) {
        return zone.contains((column + 0.5) / view.columns, (row + 0.5) / view.rows);
      };
      for (const Zone& zone : options.zones)
        if (here(zone)) cell = std::max(cell, float(zone.sensitivity));
      cell = std::ranges::any_of(options.ignored, here) ? 0 : cell * float(4 / options.threshold);
    }
  }
  return cells;
}

}  // namespace

float LossWatch::see(float loss, double looks, bool settled, double memory) {
  constexpr double kLeast = 1e-12, kLeastSpread = 0.05;
  if (!std::isfinite(loss)) return 0;
  const double value = std::log(std::max(double(loss), kLeast));
  const double spread = std::max(std::sqrt(variance_), kLeastSpread);
  const double off = seen_ == 0 ? 0 : value - mean_, border = 4 * spread;
  const float ratio = sign_.see(float(off / spread), true, looks, settled, memory);
  // The memory grows with the stream, so the high losses of the start are soon forgotten.
  const double share = 1 / std::clamp(double(seen_++) / 4, 1.0, 1000.0);
  const double step = settled ? std::clamp(off, -border, border) : off;
  mean_ = seen_ == 1 ? value : mean_ + share * step;
  variance_ = (1 - share) * (variance_ + share * step * step);
  return ratio;
}

Novelty::Novelty(int channels, int height, int width, NoveltyOptions options)
    : options_(std::move(options)),
      pace_(std::max(kLooks, options_.fps / frames_a_look(options_.fps))),
      early_(options_.fps > 0 ? 0.5 / options_.fps : 0),
      memory_(kMemory * pace_),
      view_(channels, height, width),
      background_(view_),
      whole_(view_, sensitivity(view_, options_), options_.minimum, float(4 / options_.threshold),
             memory_),
      places_(view_, sensitivity(view_, options_), options_.minimum, memory_),
      settling_(kRest * pace_, kSettling * pace_),
      settling_places_(kRestOfPlaces * pace_, kSettlingPlaces * pace_, kCalmPlaces),
      frames_(std::size_t(options_.minimum) + kLongest, -1) {}

bool Novelty::see(const Sight& now) {
  begun_.reset();
  if (now.seconds > looked_ && now.seconds < due_ - early_) return false;
  looked_ = now.seconds;
  if (std::abs(due_ - looked_) > 1 / pace_) due_ = looked_;  // a gap, another clock
  due_ += 1 / pace_;
  if (accepting_.load(std::memory_order_acquire)) accept_asked();
  view_.take(now.picture);
  background_.see(view_);
  const bool settled = settling_.settled(), old = settling_.old();
  const WholePicture::Found whole = whole_.see(view_, background_, settled);
  if (whole.begins || whole.restarts || whole.returns) places_.hold_all();
  constexpr float kMostOfIt = 0.3f;  // a larger change isn't local
  const bool calm = !whole_.active() && whole_.changed_share() < kMostOfIt && !background_.young();
  const bool places_settled = settling_places_.settled();
  Places::Found place =
      places_.see(view_, background_, old || places_settled, settling_places_.old(), calm);
  constexpr float kSign = 0.7f;  // less is the picture at rest
  settling_.see(whole.ratio > kSign);
  settling_places_.see(places_.moves() || place.ratio > kSign);
  frames_[std::size_t(settling_.looks() % std::ssize(frames_))] = now.frame;
  if (!places_settled) place = {};
  const float loss =
      float(4 / options_.threshold) * loss_.see(now.loss, double(settling_.looks()), old, memory_);
  const float ratio = std::max({settled ? whole.ratio : 0, place.ratio, old ? loss : 0});
  const bool unexpected = ratio >= 1;
  deviation_ = options_.threshold * double(ratio);
  if (unexpected) marked_ += 1;
  loss_for_ = loss >= 1 ? loss_for_ + 1 : 0;
  const int least = std::max(1, options_.minimum - LossWatch::kLasting + 1);
  if (whole.begins) {
    raise(now, whole.reason, {}, whole.looks);
  } else if (place.ratio >= 1) {
    raise(now, Reason::local, place.box, place.looks);
  } else if (old && calm && !places_.active() && loss_for_ == least) {
    raise(now, Reason::picture, {}, std::max(LossWatch::kLasting, options_.minimum));
    loss_.add();
  }
  end_or_go_on(now, unexpected);
  return unexpected;
}

void Novelty::end_or_go_on(const Sight& now, bool unexpected) {
  constexpr int kCalm = 25;
  if (!in_event_) return;
  event_peak_ = std::max<double>(event_peak_, deviation_);
  quiet_ = unexpected || whole_.active() || places_.active() ? 0 : quiet_ + 1;
  if (quiet_ < kCalm) return;
  in_event_ = false;
  rests_until_ = now.seconds + options_.cooldown;
}

bool Novelty::raises(Reason reason) const {
  return !usual_[std::size_t(reason)] &&
         std::ranges::find(options_.without, reason) == options_.without.end();
}

void Novelty::raise(const Sight& now, Reason reason, const CellBox& box, int looks) {
  if (!raises(reason)) return;
  if (options_.cooldown > 0 && (in_event_ || now.seconds < rests_until_)) return;
  const int side = view_.cell * view_.factor;
  const std::int64_t last = settling_.looks(),
                     back = std::min({std::int64_t(looks), last, std::ssize(frames_) - 1});
  begun_ = {.frame = frames_[std::size_t((last - back) % std::ssize(frames_))] + 1,
            .reason = reason,
            .left = box.left * side,
            .top = box.top * side,
            .width = (box.right - box.left) * side,
            .height = (box.bottom - box.top) * side,
            .across = view_.full_width,
            .down = view_.full_height,
            .deviation = deviation_};
  for (const Zone& zone : options_.zones)
    if (begun_->has_box() && zone.contains((box.left + box.right) / 2.0 / view_.columns,
                                           (box.top + box.bottom) / 2.0 / view_.rows))
      begun_->zone = zone.name;
  event_peak_ = begun_->deviation;
  quiet_ = 0;
  in_event_ = true;
  store(*begun_);
}

void Novelty::store(NoveltyEvent& event) {
  event.time = std::chrono::system_clock::now();
  const std::lock_guard lock(mutex_);
  by_reason_[std::size_t(event.reason)].fetch_add(1, std::memory_order_relaxed);
  event.event = events_.load(std::memory_order_relaxed) + 1;
  latest_.push_back(event);
  if (latest_.size() > kLatest) latest_.pop_front();
  events_.store(event.event, std::memory_order_release);
}

void Novelty::compare(std::vector<float>& usual, std::vector<float>& difference) const {
  const float light = begun_ && begun_->has_box() ? background_.gain() : 1;
  std::size_t to = 0;
  for (int c = 0; c < view_.channels; ++c) {
    for (int y = 0; y < view_.full_height; ++y) {
      const int row = std::min(y / view_.factor, view_.height - 1) * view_.width;
      for (int x = 0; x < view_.full_width; ++x, ++to) {
        const std::size_t pixel = std::size_t(row + std::min(x / view_.factor, view_.width - 1));
        const float level = background_.levels()[std::size_t(c) * view_.pixels() + pixel];
        usual[to] = level / 255;
        difference[to] = io::kErrorGain / 255 * std::abs(view_.level(c, pixel) - light * level);
      }
    }
  }
}

std::optional<NoveltyEvent> Novelty::lose_camera(std::int64_t frame) {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> cooldown(options_.cooldown);
  if (!raises(Reason::camera) || (lost_ && now - *lost_ < cooldown)) return std::nullopt;
  lost_ = now;
  NoveltyEvent event{.frame = frame, .reason = Reason::camera};
  store(event);
  return event;
}

bool Novelty::accept(std::int64_t event) {
  const std::vector<NoveltyEvent> known = latest();
  const auto one = std::ranges::find(known, event, &NoveltyEvent::event);
  if (one == known.end()) return false;
  if (!one->has_box()) return usual_[std::size_t(one->reason)] = true;
  accept({one->left, one->top, one->width, one->height});
  return true;
}

void Novelty::accept(const std::array<int, 4>& box) {
  const auto [left, top, width, height] = box;
  const auto cell = [&](std::int64_t pixel, int most) {
    return int(std::clamp<std::int64_t>(pixel / (view_.cell * view_.factor), 0, most));
  };
  const std::lock_guard lock(mutex_);
  accepted_.push_back({cell(left, view_.columns), cell(top, view_.rows),
                       cell(std::int64_t(left) + width, view_.columns),
                       cell(std::int64_t(top) + height, view_.rows)});
  accepting_.store(true, std::memory_order_release);
}

void Novelty::accept_asked() {
  const std::lock_guard lock(mutex_);
  for (const CellBox& box : accepted_) places_.accept(box);
  accepted_.clear();
  accepting_.store(false, std::memory_order_relaxed);
}

std::vector<NoveltyEvent> Novelty::latest() const {
  const std::lock_guard lock(mutex_);
  return {latest_.begin(), latest_.end()};
}

std::optional<NoveltyEvent> Novelty::last() const {
  const std::lock_guard lock(mutex_);
  return latest_.empty() ? std::nullopt : std::optional(latest_.back());
}

}  // namespace millrace::app
