// Raises an alert when an event of unexpected frames begins.
#pragma once

#include "engine/pipeline/feed.h"
#include "tools/app/alerts/alerts.h"
#include "tools/app/outputs/novelty.h"

namespace millrace::app {

/// Looks at what `novelty` made of a sample: it comes after whoever feeds that. Inputs and
/// predictions are pictures of one size, or `pictures` is false. All outlive it.
class AlertWatch final : public engine::Observer {
 public:
  AlertWatch(const Novelty& novelty, Alerts& alerts, bool pictures)
      : novelty_(novelty), alerts_(alerts), pictures_(pictures) {}

  void predicted(engine::Sample& sample, float loss) override {
    const std::int64_t events = novelty_.events();
    if (events == events_) return;
    events_ = events;
    const Alert alert{.event = events,
                      .frame = sample.info.index,
                      .source_frame = sample.info.frame,
                      .time = std::chrono::system_clock::now(),
                      .loss = loss,
                      .deviation = novelty_.deviation()};
    alerts_.raise(alert, pictures_ ? sample.shown_input().data() : nullptr,
                  pictures_ ? sample.prediction().data() : nullptr);
  }

 private:
  const Novelty& novelty_;
  Alerts& alerts_;
  const bool pictures_;
  std::int64_t events_ = 0;
};

}  // namespace millrace::app
