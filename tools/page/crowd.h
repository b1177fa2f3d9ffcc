// All connections of a server, served in turns by one thread.
#pragma once

#include <poll.h>

#include <atomic>
#include <list>
#include <span>
#include <vector>

#include "tools/page/connection.h"

namespace millrace::page {

/// Thread-bound, but for viewers().
class Crowd {
 public:
  /// Both outlive this.
  Crowd(const Gate& gate, const WebSubject& subject)
      : publisher_(subject), site_{gate, subject, publisher_} {}

  /// Takes over a non-blocking socket. At 256 connections the one whose request has been awaited
  /// for longest is closed, so that connections that never ask keep nobody out; if all of them
  /// watch or are being answered, the new one is closed.
  void admit(int socket);
  /// Waits for `others` and the connections, until a beat is due or `limit` has passed; then serves
  /// the connections. False if none of them had anything to do. Throws what WebSubject::look
  /// throws; the next call goes on.
  bool turn(std::span<pollfd> others, std::chrono::milliseconds limit);
  /// Connections that watch. Any thread.
  int viewers() const { return viewers_; }

 private:
  bool serve(std::span<const pollfd> polled);
  void send_latest();
  void remove_over();

  Publisher publisher_;
  const Site site_;
  std::list<Connection> connections_;  ///< oldest first
  std::vector<pollfd> polled_;
  Clock::time_point next_beat_;
  bool waiting_ = false;  ///< a viewer is ready for more than there is
  std::atomic<int> viewers_{0};
};

}  // namespace millrace::page
