// A run in a thread of its own, between a mailbox and whoever sees its predictions.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tools/bindings/gst/mailbox.h"
#include "tools/app/run.h"

namespace millrace::gst {

struct LearnerOptions {
  app::Config config;
  io::SourceInfo source;
  std::string serve;        ///< address of a page to watch on; "": none
  std::int64_t frames = 0;  ///< to train; 0: until the stream ends
  double rate = 1.0;        ///< times optimizer.lr
};

/// What is told by the learner's thread, but for `shown`, which the last stage's worker calls.
struct LearnerCalls {
  /// `wait`: rather than lose it, since frames are waited for, too.
  std::function<void(const app::Prediction&, const Stamp&, bool wait)> shown;
  std::function<void(const std::string&)> tell;  ///< a line about what happens
  std::function<void(const std::string&)> fail;  ///< why it ended, or what could not be saved
  std::function<void()> over;                    ///< all is saved; nothing follows
};

/// Learns from the frames in mailbox() until that ends, saves what the config names, and is over.
class Learner {
 public:
  Learner(LearnerOptions options, LearnerCalls calls);
  /// Stops: what is in flight is finished, and all is saved.
  ~Learner();
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  Mailbox& mailbox() { return *mailbox_; }
  /// Whether frames are lost rather than waited for.
  bool drops() const { return drops_; }
  void set_rate(double times) { rate_ = times; }
  /// Of a sample; none before it is known. Any thread.
  std::optional<std::array<int, 3>> shape() const;
  /// Longest time from a frame to its prediction, in ms. Any thread.
  double latency_ms() const { return latency_ms_.load(std::memory_order_relaxed); }

 private:
  /// What a run that is wedged still holds, and may call into whenever it wakes.
  struct Sight {
    std::mutex mutex;
    Learner* learner;  ///< under it; null: it is over
  };

  void work();
  void learn();
  void see(const app::Prediction& prediction);

  const LearnerOptions options_;
  const LearnerCalls calls_;
  const bool drops_;
  const int ahead_;  ///< frames from a prediction's input to what it predicts
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  const std::shared_ptr<Sight> sight_ = std::make_shared<Sight>();
  std::atomic<bool> stopping_{false};
  std::atomic<double> rate_;
  std::atomic<double> latency_ms_{0};
  mutable std::mutex mutex_;
  std::optional<std::array<int, 3>> shape_;
  std::thread thread_;  // last: starts when all else stands
};

}  // namespace millrace::gst
