// The latest there is to see, and who waits for something later.
#pragma once

#include <cstdint>   // versions
#include <memory>    // texts that several viewers send
#include <optional>  // a set of pictures or none
#include <utility>   // Asio 1.74 takes it for granted

#include <boost/asio/awaitable.hpp>     // waiting
#include <boost/asio/io_context.hpp>    // the server's thread
#include <boost/asio/steady_timer.hpp>  // the beat

#include "tools/page/picture_set.h"
#include "tools/page/server.h"
#include "tools/page/trend.h"

namespace millrace::page {

/// Looks at the run once a second, or four times if somebody watches, and asks for pictures 15
/// times a second while a viewer is ready for one. Nothing is kept for anybody: whoever is ready
/// takes what is latest. The server's thread alone.
class Publisher {
 public:
  Publisher(boost::asio::io_context& context, const WebSubject& subject);

  /// Works until stop().
  boost::asio::awaitable<void> run();
  void stop();
  bool stopped() const { return stopped_; }

  /// Returns when something may be newer, and when stopped. While a viewer waits here, pictures are
  /// asked for.
  boost::asio::awaitable<void> changed();

  /// The state as JSON, of the latest look. `version` grows.
  Bytes state(std::uint64_t& version);
  /// The latest pictures, or null; `version` grows.
  PictureSet* pictures(std::uint64_t& version);
  /// The past up to now; looks first if the latest look is older than a quarter of a second.
  const Trend& trend();
  /// Looks now, so that those who watch see what became of a wish.
  void look();

  /// A viewer, who need not wait for the next look.
  void came() {
    ++viewers_;
    beat_.cancel();
  }
  void went() { --viewers_; }
  int viewers() const { return viewers_; }

 private:
  void take_pictures();

  const WebSubject& subject_;
  boost::asio::steady_timer beat_, wake_;
  Trend trend_;
  Clock::time_point looked_;
  std::optional<PictureSet> pictures_;
  Bytes state_;  ///< null: to be made of the latest look
  std::uint64_t state_version_ = 0, picture_version_ = 0;
  int viewers_ = 0;
  int ready_ = 0;  ///< viewers that wait for a change
  bool stopped_ = false;
};

}  // namespace millrace::page
