#include "tools/bindings/gst/outlet.h"

#include <utility>

namespace millrace::gst {

Outlet::Outlet(int room) : room_(std::size_t(room)), spare_(room_ + 1) {}

void Outlet::put(const app::Prediction& prediction, const Stamp& stamp, bool wait) {
  std::unique_lock lock(mutex_);
  const auto unwanted = [&] { return flushing_ || stamp.position < from_; };
  if (wait) changed_.wait(lock, [&] { return waiting_.size() < room_ || unwanted(); });
  if (unwanted()) return;
  if (waiting_.size() >= room_) {
    ++dropped_;
    return;
  }
  Shown shown;
  if (!spare_.empty()) {
    shown = std::move(spare_.back());
    spare_.pop_back();
  }
  shown.stamp = stamp;
  shown.frame = prediction.frame;
  shown.loss = prediction.loss;
  shown.input.assign(prediction.input.begin(), prediction.input.end());
  shown.target.assign(prediction.target.begin(), prediction.target.end());
  shown.prediction.assign(prediction.prediction.begin(), prediction.prediction.end());
  waiting_.push_back(std::move(shown));
  changed_.notify_all();
}

void Outlet::put(GstEvent* event, std::int64_t position) {
  const std::lock_guard lock(mutex_);
  events_.push_back({event, position});
  changed_.notify_all();
}

void Outlet::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void Outlet::flush(bool on, std::int64_t position) {
  const std::lock_guard lock(mutex_);
  flushing_ = on;
  if (on) {
    from_ = position;
    drop_pictures();
    drop_events(false);
  } else {
    ended_ = false;
  }
  changed_.notify_all();
}

void Outlet::reset() {
  const std::lock_guard lock(mutex_);
  flushing_ = true;
  ended_ = false;
  from_ = dropped_ = 0;
  drop_pictures();
  drop_events(true);
}

void Outlet::drop_pictures() {
  while (!waiting_.empty()) {
    spare_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

/// After a flush, upstream sends the segment again, but no other sticky event: those stay, unless
/// `all` go.
void Outlet::drop_events(bool all) {
  const auto stays = [](GstEvent* event) {
    return GST_EVENT_IS_STICKY(event) && GST_EVENT_TYPE(event) != GST_EVENT_SEGMENT &&
           GST_EVENT_TYPE(event) != GST_EVENT_EOS;
  };
  std::erase_if(events_, [&](const Event& one) {
    if (!all && stays(one.event)) return false;
    gst_event_unref(one.event);
    return true;
  });
}

Outlet::~Outlet() {
  drop_events(true);
}

Outlet::Next Outlet::next(Shown& picture, GstEvent*& event) {
  std::unique_lock lock(mutex_);
  if (!picture.input.empty()) spare_.push_back(std::exchange(picture, {}));
  changed_.wait(lock, [&] { return flushing_ || ended_ || !waiting_.empty(); });
  if (flushing_) return Next::flushing;
  const bool due = !events_.empty() && (waiting_.empty() || events_.front().position <=
                                                                waiting_.front().stamp.position);
  if (due) {
    event = events_.front().event;
    events_.pop_front();
    return Next::event;
  }
  if (waiting_.empty()) return Next::end;
  picture = std::move(waiting_.front());
  waiting_.pop_front();
  changed_.notify_all();
  return Next::picture;
}

std::int64_t Outlet::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace millrace::gst
