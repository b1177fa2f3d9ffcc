// TCP connections that never block.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "io/files/descriptor.h"

namespace millrace::io {

/// Whether only this machine can reach what is served at `host`, an address or "localhost".
bool is_loopback(const std::string& host);

/// How many connections a server may hold at a time: `most`, but no more than a quarter of the
/// files that this process may open. Sources, checkpoints and the outputs of the end need the
/// others.
int connection_limit(int most);

struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

/// Asks the name service, which may block. Empty if `host` has no address.
std::vector<Address> addresses_of(const std::string& host, const std::string& port);
/// The same, in a thread that is left to itself if the name service is silent for `limit`; then
/// nothing is returned.
std::optional<std::vector<Address>> addresses_of(const std::string& host, const std::string& port,
                                                 std::chrono::milliseconds limit);
/// "192.0.2.1"; "" if it has no such form.
std::string numeric(const Address& address);

/// A non-blocking connection, from the attempt to its end. Thread-bound.
class Dial {
 public:
  explicit Dial(const Address& to);

  /// 0 if it is connected, or the errno of the failure; nothing while the attempt lasts.
  std::optional<int> result();
  int socket() const { return socket_.get(); }

 private:
  Descriptor socket_;
  std::optional<int> result_;
};

}  // namespace millrace::io
