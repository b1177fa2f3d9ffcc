// A run in its own thread, fed by a mailbox.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tools/app/run.h"
#include "tools/bindings/gst/mailbox.h"

namespace millrace::gst {

struct LearnerOptions {
  app::Config config;
  io::SourceInfo source;
  std::string serve;        ///< address of a page to watch on; "": none
  std::int64_t frames = 0;  ///< to train; 0: until the stream ends
  double rate = 1.0;        ///< times optimizer.lr
};

/// Called on the learner's thread, except for `shown`, which the last stage's worker calls.
struct LearnerCalls {
  /// `wait`: block rather than drop the prediction; set if frames block, too.
  std::function<void(const app::Prediction&, const Stamp&, bool wait)> shown;
  std::function<void(const std::string&)> tell;  ///< a log line
  std::function<void(const std::string&)> fail;  ///< why it ended, or what could not be saved
  std::function<void()> over;                    ///< everything is saved; nothing follows
};

/// Learns from the frames in mailbox() until that ends, and saves what the config names.
class Learner {
 public:
  Learner(LearnerOptions options, LearnerCalls calls);
  /// Drains the pipeline and saves.
  ~Learner();
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  Mailbox& mailbox() { return *mailbox_; }
  /// Whether frames are dropped rather than waited for.
  bool drops() const { return drops_; }
  void set_rate(double times) { rate_ = times; }
  /// Channels, height, width of a sample, once known. Any thread.
  std::optional<std::array<int, 3>> shape() const;
  /// Longest time from a frame to its prediction, in ms. Any thread.
  double latency_ms() const { return latency_ms_.load(std::memory_order_relaxed); }

 private:
  /// Shared with a wedged run, which may still call it after this object is gone.
  struct Sight {
    std::mutex mutex;
    Learner* learner;  ///< under mutex; null: it is over
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
