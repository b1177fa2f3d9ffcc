// A connection to the page: requests one after another, until one stays to watch.
#pragma once

#include <cstdint>
#include <deque>

#include "tools/page/http.h"
#include "tools/page/publisher.h"

namespace millrace::page {

/// What all connections of a server share.
struct Site {
  const Gate& gate;
  const WebSubject& subject;
  Publisher& publisher;
};

/// Whether this request may be answered with what it asks for. If not, `refusal` is the answer.
bool admitted(const Site& site, const Request& request, Response& refusal);
/// The answer to an admitted request other than those that stay to watch.
Response answer(const Site& site, const Request& request);

/// Never blocks. A viewer is sent the latest state or pictures whenever it is ready for more, so
/// nothing piles up for a slow one, and one that is stuck for 10 s is let go. Thread-bound.
class Connection {
 public:
  /// Takes over `socket`, which is non-blocking.
  Connection(const Site& site, int socket);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int socket() const { return socket_; }
  /// The events to poll() for.
  short events() const;
  /// Reads and writes as far as `events` allow.
  void serve(short events);
  /// Sends a viewer what it has not seen. True if it is ready for more than there is.
  bool send_latest();

  /// It has ended, failed or run out of time.
  bool over(Clock::time_point now) const { return over_ || now > deadline_; }
  /// Its next request has not arrived yet.
  bool asks() const { return role_ == Role::asks; }
  bool watches() const { return role_ == Role::live || role_ == Role::picture; }

 private:
  enum class Role {
    asks,     ///< a request is awaited
    answers,  ///< a response is on its way
    live,     ///< watches states and pictures over a WebSocket
    picture,  ///< watches one picture as multipart parts (MJPEG)
  };

  void read();
  bool take_request();
  void take_frames();
  void watch_picture(std::size_t index);
  bool send_newer();
  bool send_newer_picture();
  void send_message(Opcode opcode, Bytes payload);
  void send(std::string bytes);
  void send(Bytes bytes);
  void flush();
  void all_sent();

  const Site& site_;
  const int socket_;
  Role role_ = Role::asks;
  std::string in_;
  std::deque<Bytes> out_;  ///< what the kernel has not taken yet
  std::size_t sent_ = 0;   ///< of its first
  Clock::time_point deadline_;
  bool last_ = false;  ///< the connection ends after this response
  bool over_ = false;

  // Of a viewer.
  int room_ = 0;             ///< messages that may be sent before the page confirms one
  std::size_t picture_ = 0;  ///< which of kPictureNames it watches
  std::uint64_t state_seen_ = 0, pictures_seen_ = 0;
  Clock::time_point last_part_;
};

}  // namespace millrace::page
