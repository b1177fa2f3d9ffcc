// Raises an alert when an event of unexpected frames begins.
#pragma once

#include "engine/trainer/trainer.h"
#include "tools/app/alerts/alerts.h"
#include "tools/app/outputs/novelty.h"

namespace millrace::app {

/// Looks at what `novelty` made of a sample: it comes after whoever feeds that. Inputs and
/// predictions are pictures of one size, or `pictures` is false. All outlive it.
class AlertWatch final : public engine::Observer {
 public:
  AlertWatch(engine::Trainer& trainer, const Novelty& novelty, Alerts& alerts, bool pictures)
      : trainer_(trainer), novelty_(novelty), alerts_(alerts), pictures_(pictures) {}

  void predicted(const engine::SampleInfo& info, int slot, float loss) override {
    const std::int64_t events = novelty_.events();
    if (events == events_) return;
    events_ = events;
    const Alert alert{.event = events,
                      .frame = info.sample,
                      .source_frame = info.frame,
                      .time = std::chrono::system_clock::now(),
                      .loss = loss,
                      .deviation = novelty_.deviation()};
    alerts_.raise(alert, pictures_ ? trainer_.shown_input(slot) : nullptr,
                  pictures_ ? trainer_.prediction(slot) : nullptr);
  }

 private:
  engine::Trainer& trainer_;
  const Novelty& novelty_;
  Alerts& alerts_;
  const bool pictures_;
  std::int64_t events_ = 0;
};

}  // namespace millrace::app
