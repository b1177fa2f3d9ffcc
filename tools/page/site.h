#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>  // Asio 1.74 uses it without including it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include "io/network/dial.h"
#include "tools/page/event_store.h"
#include "tools/page/json.h"
#include "tools/page/picture_set.h"
#include "tools/page/server.h"

namespace millrace::page {

using Request = boost::beast::http::request<boost::beast::http::string_body>;
using Response = boost::beast::http::response<boost::beast::http::string_body>;

/// Makes an operation put its failure into `error` instead of throwing it.
inline auto tells(boost::system::error_code& error) {
  return boost::asio::redirect_error(boost::asio::use_awaitable, error);
}
/// Until `timer` expires or is cancelled.
inline boost::asio::awaitable<void> wait(boost::asio::steady_timer& timer) {
  boost::system::error_code cancelled;
  co_await timer.async_wait(tells(cancelled));
}

/// Polls the run once a second, or four times while somebody watches, and requests pictures 15
/// times a second while a viewer is ready for one. Nothing is queued: a viewer that is ready takes
/// the latest. Server thread only.
class Publisher {
 public:
  Publisher(boost::asio::io_context& context, const WebSubject& subject, EventStore& events)
      : subject_(subject), events_(events), beat_(context), wake_(context) {
    wake_.expires_at(boost::asio::steady_timer::time_point::max());
    if (subject.event_picture) subject.event_picture->ask();
  }

  boost::asio::awaitable<void> run() {
    while (!stopped_) {
      const Clock::time_point now = Clock::now();
      // A little early rather than a beat late.
      if (now - looked_ > (viewers_ > 0 ? kWatchedLook : kLook) - kPictureBeat / 2) look();
      take_pictures();
      beat_.expires_after(viewers_ > 0 ? kPictureBeat : kLook);
      co_await wait(beat_);
    }
  }
  void stop() {
    stopped_ = true;
    beat_.cancel();
    wake_.cancel();
  }
  bool stopped() const { return stopped_; }

  /// Returns when there may be news, or after stop(). A waiting viewer requests pictures.
  boost::asio::awaitable<void> changed() {
    ++ready_;
    if (!stopped_) co_await wait(wake_);
    --ready_;
  }

  /// The latest poll's state as JSON. `version` grows.
  Bytes state(std::uint64_t& version) {
    if (state_version_ == 0) look();
    if (!state_) {
      Json events = events_.summary();
      events["teachable"] = true;
      state_ = std::make_shared<const std::string>(
          state_json(trend_.live(), *subject_.controls, viewers_, std::move(events)));
    }
    version = state_version_;
    return state_;
  }
  /// The latest pictures, or null; `version` grows.
  PictureSet* pictures(std::uint64_t& version) {
    version = picture_version_;
    return pictures_ ? &*pictures_ : nullptr;
  }
  /// The history so far; polls first if the last poll is older than a quarter of a second.
  const Trend& trend() {
    if (Clock::now() - looked_ > kWatchedLook) look();
    return trend_;
  }
  /// Polls now, so that viewers see the effect of a request.
  void look() {
    looked_ = Clock::now();
    trend_.add(subject_.look(), looked_);
    events_.refresh();
    take_event();
    state_.reset();
    ++state_version_;
    wake_.cancel();
  }

  void came() {
    ++viewers_;
    beat_.cancel();
  }
  void went() { --viewers_; }
  int viewers() const { return viewers_; }

 private:
  static constexpr std::chrono::milliseconds kPictureBeat{66}, kWatchedLook{250}, kLook{1000};

  void take_pictures() {
    if (!subject_.pictures) return;
    if (const io::Frame* const frame = subject_.camera ? subject_.camera->take() : nullptr) {
      camera_ = shown(*frame);
      subject_.camera->give_back();
    }
    if (const Pictures* const taken = subject_.pictures->take()) {
      pictures_.emplace(*taken, camera_);
      subject_.pictures->give_back();
      ++picture_version_;
      wake_.cancel();
    }
    if (ready_ > 0) subject_.pictures->ask();
    if (ready_ > 0 && subject_.camera) subject_.camera->ask();
  }

  void take_event() {
    if (!subject_.event_picture) return;
    const Pictures* const began = subject_.event_picture->take();
    if (!began) return;
    const Json& novelty = trend_.live().now.state["novelty"];
    Json event = novelty.value("last", Json::object());
    event["event"] = novelty.value("events", std::int64_t(0));
    if (!event.contains("time")) event["time"] = double(std::time(nullptr));
    events_.add(std::move(event), png_of_input(*began));
    subject_.event_picture->give_back();
    subject_.event_picture->ask();
  }

  const WebSubject& subject_;
  EventStore& events_;
  boost::asio::steady_timer beat_, wake_;
  Trend trend_;
  Clock::time_point looked_;
  std::optional<PictureSet> pictures_;
  cv::Mat camera_;  ///< never written to once a set shares it
  Bytes state_;     ///< null: not yet built from the latest poll
  std::uint64_t state_version_ = 0, picture_version_ = 0;
  int viewers_ = 0, ready_ = 0;
  bool stopped_ = false;
};

/// Watchers get at most three quarters of the connections, and the others make room for newcomers,
/// so short requests such as /healthz always get through.
enum class Doing { asks, is_answered, watches };

struct Line {
  std::function<void()> hang_up;                          ///< makes all its pending operations fail
  Clock::time_point deadline = Clock::time_point::max();  ///< when it will be closed
  Doing doing = Doing::asks;
  bool hung_up = false;  ///< about to close
};

/// One per server; server thread only.
struct Site {
  Site(boost::asio::io_context& context, const Gate& entry, WebSubject shown)
      : gate(entry),
        subject(std::move(shown)),
        events(subject.snapshots),
        publisher(context, subject, events) {}

  const Gate gate;
  const WebSubject subject;
  EventStore events;
  Publisher publisher;
  std::list<Line> lines;

  static int most_lines() { return io::connection_limit(256); }
  bool has_room_to_watch() const { return publisher.viewers() < most_lines() * 3 / 4; }
};

/// Errors end the connection silently.
boost::asio::awaitable<void> serve(Site& site, boost::asio::ip::tcp::socket socket);

/// The response to any request but /live and /picture, which stay open.
Response answer(Site& site, const Request& request);
Response malformed(const std::string& why);
Response crowded(const Request& request);
/// The response to a request that may not be answered, or that brings the token.
std::optional<Response> instead_of_answer(const Site& site, const Request& request);
std::string_view path_of(const Request& request);

}  // namespace millrace::page
