#include "tools/bindings/gst/mailbox.h"

#include <utility>

namespace millrace::gst {

Mailbox::Put Mailbox::put(io::Frame& frame, const Stamp& stamp, bool gap, bool wait) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !full_ || !wait || flushing_ || ended_; });
  if (flushing_) return Put::flushing;
  if (ended_) return Put::over;
  if (full_) ++lost_;
  gap_ = gap_ || gap || full_;
  std::swap(frame_, frame);
  stamp_ = stamp;
  full_ = true;
  changed_.notify_all();
  return Put::taken;
}

void Mailbox::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void Mailbox::flush(bool on) {
  const std::lock_guard lock(mutex_);
  if (on && full_) ++lost_;
  if (on) full_ = false;
  flushing_ = on;
  gap_ = true;
  changed_.notify_all();
}

io::ReadStatus Mailbox::take(io::Frame& out, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return full_ || ended_; }))
    return io::ReadStatus::timeout;
  if (!full_) return io::ReadStatus::end;
  std::swap(out, frame_);
  const bool first = first_ == 0 && stamps_.empty();
  if (std::exchange(gap_, false) && !first) ++health_->reconnects;
  stamps_.push_back(stamp_);
  full_ = false;
  changed_.notify_all();
  return io::ReadStatus::frame;
}

std::optional<Stamp> Mailbox::stamp_of(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  if (id < first_ || id >= first_ + std::int64_t(stamps_.size())) return std::nullopt;
  return stamps_[std::size_t(id - first_)];
}

void Mailbox::forget_before(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  for (; first_ < id && !stamps_.empty(); ++first_) stamps_.pop_front();
}

std::int64_t Mailbox::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

namespace {

class MailboxSource final : public io::Source {
 public:
  MailboxSource(std::shared_ptr<Mailbox> mailbox, const io::SourceInfo& info)
      : mailbox_(std::move(mailbox)), info_(info) {}

  io::SourceInfo info() const override { return info_; }
  io::ReadStatus read(io::Frame& out, std::chrono::milliseconds timeout) override {
    return mailbox_->take(out, timeout);
  }
  bool rewind() override { return false; }
  std::shared_ptr<const io::StreamHealth> health() const override { return mailbox_->health(); }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
  const io::SourceInfo info_;
};

}  // namespace

std::unique_ptr<io::Source> source_of(std::shared_ptr<Mailbox> mailbox,
                                      const io::SourceInfo& info) {
  return std::make_unique<MailboxSource>(std::move(mailbox), info);
}

}  // namespace millrace::gst
