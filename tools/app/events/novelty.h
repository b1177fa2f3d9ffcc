// Raises events, with their place and reason, when a stream shows something new.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/monitor/histogram.h"
#include "tools/app/events/places.h"
#include "tools/app/events/whole_picture.h"

namespace millrace::app {

struct NoveltyOptions {
  double threshold = 4;         ///< deviation from which a look is unexpected; 8: half as sensitive
  int minimum = 3;              ///< consecutive unexpected looks that make an event
  double cooldown = 0;          ///< seconds after an event in which none begins
  std::vector<Reason> without;  ///< reasons that raise no event
  std::vector<Zone> zones, ignored;
  double fps = 0;  ///< of the stream; 0: unknown
};

struct Sight {
  const float* picture = nullptr;  ///< float32 [channels][height][width] in 0..1
  float loss = 0;
  std::int64_t frame = 0;  ///< the source's frame number
  double seconds = 0;      ///< capture time
};

/// How far the network's loss lies above its usual. Compares logarithms, since losses fall by
/// decades in learning; takes the least deviation of the last second: one hard frame is no news.
class LossWatch {
 public:
  static constexpr int kLasting = 10;  ///< looks

  /// The deviation over its limit; an event from 1 on. `looks`: so far.
  float see(float loss, double looks, bool settled, double memory);
  void add() { sign_.add(); }

 private:
  double mean_ = 0, variance_ = 0;
  std::int64_t seen_ = 0;
  LastingSign sign_{kLasting, {4, 1, 1.5f}};
};

/// Looks at ten to twenty pictures a second, or at each if the stream is slower. A look is
/// unexpected if some place, the picture as a whole or the network's loss lies above anything the
/// stream has shown so far; the deviation is the strongest of these over its limit, times the
/// threshold. A lasting change becomes usual, which ends the event. see(): one thread, never blocks
/// or allocates except when an event begins. The others: any thread.
class Novelty {
 public:
  Novelty(int channels, int height, int width, NoveltyOptions options);

  bool see(const Sight& now);
  /// The event that began with the latest picture, or null. Thread of see().
  const NoveltyEvent* begun() const { return begun_ ? &*begun_ : nullptr; }
  /// Writes the usual picture, and how the latest one differs from it, magnified; for an event at a
  /// place in the same light. Both are float32 [channels][height][width]. Thread of see().
  void compare(std::vector<float>& usual, std::vector<float>& difference) const;
  /// Raises an event for a lost camera, unless the options leave it out or one was lost within the
  /// cooldown. One thread.
  std::optional<NoveltyEvent> lose_camera(std::int64_t frame);
  /// Makes usual what is at the event's place; an event of the whole picture: its reason raises no
  /// other. False: the event is no longer known.
  bool accept(std::int64_t event);
  /// Makes usual what is at [x, y, width, height] of the samples.
  void accept(const std::array<int, 4>& box);

  double threshold() const { return options_.threshold; }
  double deviation() const { return deviation_; }  ///< of the last look; 0 while settling
  bool in_event() const { return in_event_; }
  std::int64_t marked() const { return marked_; }  ///< unexpected looks
  std::int64_t events() const { return events_.load(std::memory_order_acquire); }
  std::int64_t events_of(Reason reason) const { return by_reason_[std::size_t(reason)]; }
  double event_peak() const { return event_peak_; }
  std::vector<NoveltyEvent> latest() const;
  std::optional<NoveltyEvent> last() const;

 private:
  /// Seconds of rest that settle a stream, and seconds until one that never rests is settled: the
  /// picture, which a camera's exposure may change at first; places, where first sights are
  /// frequent for longer. Places that mostly rest settle, too, since leaves may move now and then.
  static constexpr double kRest = 8, kSettling = 30, kRestOfPlaces = 5, kSettlingPlaces = 90,
                          kCalmPlaces = 0.8;
  static constexpr double kMemory = 600;  ///< seconds
  static constexpr std::size_t kLatest = 100;
  static constexpr std::size_t kLongest = 40;  ///< looks from a sign's beginning to its event

  void raise(const Sight& now, Reason reason, const CellBox& box, int looks);
  bool raises(Reason reason) const;
  void store(NoveltyEvent& event);
  void end_or_go_on(const Sight& now, bool unexpected);
  void accept_asked();

  const NoveltyOptions options_;
  const double pace_;    ///< looks a second
  const double early_;   ///< seconds: half a frame, so that jitter costs no look
  const double memory_;  ///< looks
  Reduced view_;
  Background background_;
  WholePicture whole_;
  Places places_;
  LossWatch loss_;
  Settling settling_, settling_places_;
  std::vector<std::int64_t> frames_;  ///< of the latest looks: [look % size]
  double looked_ = -1e9, due_ = 0;    ///< seconds: the last look, the next
  double rests_until_ = -1;           ///< no event begins earlier
  int quiet_ = 0;
  int loss_for_ = 0;  ///< looks with an unexpected loss
  std::atomic<bool> accepting_{false}, usual_[kReasons] = {};
  engine::Counter<double> deviation_, event_peak_;
  engine::Counter<bool> in_event_;
  engine::Counter<std::int64_t> marked_;
  std::optional<NoveltyEvent> begun_;
  std::optional<std::chrono::steady_clock::time_point> lost_;  ///< the camera, with an event
  std::atomic<std::int64_t> events_{0}, by_reason_[kReasons] = {};
  mutable std::mutex mutex_;  ///< taken when an event begins, and by readers of events
  std::deque<NoveltyEvent> latest_;
  std::vector<CellBox> accepted_;
};

}  // namespace millrace::app
