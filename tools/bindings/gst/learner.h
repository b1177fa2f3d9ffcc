#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tools/app/intake.h"
#include "tools/app/run.h"
#include "tools/bindings/gst/picture.h"
#include "tools/bindings/gst/queues.h"

namespace millrace::gst {

/// The element's properties.
struct Settings {
  std::string config;       ///< file; "": the defaults
  std::string set;          ///< overrides "table.key=value", separated by semicolons or newlines
  std::string schedule;     ///< "": the config's
  std::string weights;      ///< loaded if the file exists, and saved to; "": the config's
  std::string report;       ///< output file; "": the config's
  std::string serve;        ///< address of the run's page; "": none
  std::int64_t frames = 0;  ///< to train; 0: until the stream ends
  double rate = 1.0;
  Output output = Output::prediction;
  bool qos = true;             ///< don't draw pictures that are too late
  bool post_messages = false;  ///< one per prediction
};

/// Learns from the frames in mailbox() until it ends, puts predictions into an outlet, and writes
/// the config's outputs. Posts events in the element's name.
class Learner {
 public:
  /// `element` and `outlet` outlive this.
  Learner(const app::Config& config, const io::SourceInfo& source, const Settings& settings,
          GstElement* element, Outlet& outlet)
      : config_(config),
        source_(source),
        settings_(settings),
        element_(element),
        outlet_(outlet),
        drops_(app::drop_policy(config, source) == io::Drop::newest),
        ahead_(app::reader_options(config, source).ahead),
        rate_(settings.rate),
        thread_([this] {
          sight_->learner = this;
          work();
        }) {}
  /// Drains the pipeline and saves.
  ~Learner() {
    stopping_ = true;
    mailbox_->end();
    thread_.join();
  }

  Mailbox& mailbox() { return *mailbox_; }
  /// Whether frames are dropped rather than waited for.
  bool drops() const { return drops_; }
  void set_rate(double times) { rate_ = times; }
  /// Channels, height, width of a sample, once known. Any thread.
  std::optional<std::array<int, 3>> shape() const {
    const std::lock_guard lock(mutex_);
    return shape_;
  }
  /// Whether everything is saved and no prediction follows. Any thread.
  bool over() const { return over_; }
  /// Longest time from a frame to its prediction, in ms. Any thread.
  double latency_ms() const { return latency_ms_.load(std::memory_order_relaxed); }

 private:
  /// Shared with a wedged run, which may still use it after this object is gone.
  struct Sight {
    std::mutex mutex;
    Learner* learner;  ///< under mutex; null when it is gone
  };

  void work() {
    try {
      learn();
    } catch (const std::exception& error) {
      fail(error.what());
    }
    mailbox_->end();
    over_ = true;
    outlet_.end();
    const std::lock_guard lock(sight_->mutex);
    sight_->learner = nullptr;
  }
  void tell(const std::string& line) {
    // gst-launch prints the debug text.
    GST_ELEMENT_INFO(element_, STREAM, FAILED, ("%s", line.c_str()), ("%s", line.c_str()));
  }
  void fail(const std::string& why) {
    GST_ELEMENT_ERROR(element_, STREAM, FAILED, ("%s", why.c_str()), (nullptr));
  }
  void learn() {
    app::RunOptions options{.serve = !settings_.serve.empty(), .serve_at = settings_.serve};
    options.open_source = [this] { return std::make_unique<MailboxSource>(mailbox_, source_); };
    auto run = std::make_unique<app::Run>(config_, options);
    {
      const std::lock_guard lock(mutex_);
      shape_ = run->shape();
    }
    for (const std::string& remark : run->remarks()) tell(remark);
    if (!run->page().empty()) tell("page: " + run->page());
    run->on_event([this](const std::string& line) { tell(line); });
    run->on_prediction([sight = sight_](const app::Prediction& prediction) {
      const std::lock_guard lock(sight->mutex);
      if (sight->learner) sight->learner->see(prediction);
    });
    double rate = 1.0;
    run->on_tick([&] {
      if (stopping_) run->stop();
      if (rate_ != rate) run->set_rate(rate = rate_);
    });
    std::string failure;
    const auto failed = [&](const std::string& what) {
      failure += (failure.empty() ? "" : "; ") + what;
    };
    try {
      run->learn(settings_.frames);
    } catch (const app::Wedged& error) {
      (void)run.release();  // its threads can't be joined
      throw;
    } catch (const std::exception& error) {
      failed(error.what());
    } catch (...) {  // a plug-in's exception
      failed("an exception of an unknown type");
    }
    for (const std::string& what : run->save()) failed(what);
    if (!run->source_error().empty()) failed(run->source_error());
    if (!failure.empty()) fail(failure);
    tell(run->summary());
  }
  void see(const app::Prediction& prediction) {
    latency_ms_.store(std::max(latency_ms(), prediction.latency_ms), std::memory_order_relaxed);
    // A prediction gets the time stamp of the frame it predicts.
    const std::optional<Stamp> stamp = mailbox_->stamp_of(prediction.frame + ahead_);
    if (stamp) outlet_.put(prediction, *stamp, !drops_);
    mailbox_->forget_before(prediction.frame);
  }

  const app::Config config_;
  const io::SourceInfo source_;
  const Settings settings_;
  GstElement* const element_;
  Outlet& outlet_;
  const bool drops_;
  const int ahead_;  ///< frames from a prediction's input to its target
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  const std::shared_ptr<Sight> sight_ = std::make_shared<Sight>();
  std::atomic<bool> stopping_{false}, over_{false};
  std::atomic<double> rate_;
  std::atomic<double> latency_ms_{0};
  mutable std::mutex mutex_;
  std::optional<std::array<int, 3>> shape_;
  std::thread thread_;  // last: uses the members above
};

}  // namespace millrace::gst
