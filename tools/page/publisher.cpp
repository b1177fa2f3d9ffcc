#include "tools/page/publisher.h"

#include "tools/page/json.h"

namespace millrace::page {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPictureBeat{66};
constexpr milliseconds kWatchedLook{250};
constexpr milliseconds kLook{1000};

}  // namespace

milliseconds Publisher::period(int viewers) {
  return viewers > 0 ? kPictureBeat : kLook;
}

void Publisher::beat(Clock::time_point now, int viewers, bool waiting) {
  viewers_ = viewers;
  // A little early rather than a beat late.
  if (now - looked_ > (viewers > 0 ? kWatchedLook : kLook) - kPictureBeat / 2) look();
  if (!subject_.pictures) return;
  if (const Pictures* const shown = subject_.pictures->take()) {
    pictures_.emplace(*shown);
    subject_.pictures->give_back();
    ++picture_version_;
  }
  if (waiting) subject_.pictures->ask();
}

void Publisher::look() {
  looked_ = Clock::now();
  trend_.add(subject_.look(), looked_);
  state_.reset();
  ++state_version_;
}

Bytes Publisher::state(std::uint64_t& version) {
  if (state_version_ == 0) look();
  if (!state_) {
    state_ =
        std::make_shared<const std::string>(state_json(trend_.live(), subject_.controls, viewers_));
  }
  version = state_version_;
  return state_;
}

PictureSet* Publisher::pictures(std::uint64_t& version) {
  version = picture_version_;
  return pictures_ ? &*pictures_ : nullptr;
}

const Trend& Publisher::trend() {
  if (Clock::now() - looked_ > kWatchedLook) look();
  return trend_;
}

}  // namespace millrace::page
