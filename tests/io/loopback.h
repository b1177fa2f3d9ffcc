// TCP on loopback.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstdint>

#include "io/files/descriptor.h"

namespace millrace::io {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(std::uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// A free port, at which nobody listens yet.
struct Port {
  Port() {
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length);
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
    number = ntohs(address.sin_port);
  }
  bool listen() const { return ::listen(socket.get(), 5) == 0; }

  Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  int number = 0;
};

/// A connection to `port`; `buffer`: bytes that it takes in before they are read, 0: as usual.
inline Descriptor connected(int port, int buffer = 0) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (buffer > 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  const sockaddr_in address = loopback(port);
  ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return socket;
}

}  // namespace millrace::io
