#include "tools/page/publisher.h"

#include <boost/asio/redirect_error.hpp>  // waits that end early
#include <boost/asio/use_awaitable.hpp>   // coroutines

#include "tools/page/json.h"

namespace millrace::page {
namespace {

namespace net = boost::asio;
using std::chrono::milliseconds;

constexpr milliseconds kPictureBeat{66};
constexpr milliseconds kWatchedLook{250};
constexpr milliseconds kLook{1000};

}  // namespace

Publisher::Publisher(net::io_context& context, const WebSubject& subject)
    : subject_(subject), beat_(context), wake_(context) {
  wake_.expires_at(net::steady_timer::time_point::max());
}

net::awaitable<void> Publisher::run() {
  while (!stopped_) {
    const Clock::time_point now = Clock::now();
    // A little early rather than a beat late.
    if (now - looked_ > (viewers_ > 0 ? kWatchedLook : kLook) - kPictureBeat / 2) look();
    take_pictures();
    beat_.expires_after(viewers_ > 0 ? kPictureBeat : kLook);
    boost::system::error_code early;
    co_await beat_.async_wait(net::redirect_error(net::use_awaitable, early));
  }
}

void Publisher::stop() {
  stopped_ = true;
  beat_.cancel();
  wake_.cancel();
}

net::awaitable<void> Publisher::changed() {
  ++ready_;
  boost::system::error_code woken;
  if (!stopped_) co_await wake_.async_wait(net::redirect_error(net::use_awaitable, woken));
  --ready_;
}

void Publisher::look() {
  looked_ = Clock::now();
  trend_.add(subject_.look(), looked_);
  state_.reset();
  ++state_version_;
  wake_.cancel();
}

void Publisher::take_pictures() {
  if (!subject_.pictures) return;
  if (const Pictures* const shown = subject_.pictures->take()) {
    pictures_.emplace(*shown);
    subject_.pictures->give_back();
    ++picture_version_;
    wake_.cancel();
  }
  if (ready_ > 0) subject_.pictures->ask();
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
