#pragma once

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "io/files/descriptor.h"

namespace millrace::io {

/// Whether `host`, an address or "localhost", is reachable only from this machine.
bool is_loopback(const std::string& host);

/// Connections that a server may hold: `most`, but at most a quarter of the process's file limit,
/// since sources, checkpoints and final outputs need files, too.
int connection_limit(int most);

struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

/// Asks the name service, which may block. Empty if `host` has no address.
std::vector<Address> addresses_of(const std::string& host, const std::string& port);
/// Returns nothing if the name service is silent for `limit`; its thread is then abandoned.
std::optional<std::vector<Address>> addresses_of(const std::string& host, const std::string& port,
                                                 std::chrono::milliseconds limit);
/// "192.0.2.1"; "" if it has no such form.
std::string numeric(const Address& address);

/// A non-blocking connection attempt, then its connection. Thread-bound.
class Dial {
 public:
  explicit Dial(const Address& to);

  /// 0 if connected, else the errno of the failure; nothing while the attempt lasts.
  std::optional<int> result();
  int socket() const { return socket_.get(); }

 private:
  Descriptor socket_;
  std::optional<int> result_;
};

}  // namespace millrace::io
