#include "io/network/dial.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace millrace::io {

bool is_loopback(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  if (::inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
}

std::vector<Address> addresses_of(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<Address> addresses;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return addresses;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    Address& address = addresses.emplace_back();
    std::memcpy(&address.bytes, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
  }
  ::freeaddrinfo(found);
  return addresses;
}

Dial::Dial(const Address& to)
    : socket_(::socket(to.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  const bool connected =
      socket_ >= 0 &&
      ::connect(socket_, reinterpret_cast<const sockaddr*>(&to.bytes), to.length) == 0;
  if (connected || errno != EINPROGRESS) result_ = connected ? 0 : errno;
}

Dial::~Dial() {
  if (socket_ >= 0) ::close(socket_);
}

std::optional<int> Dial::result() {
  pollfd wanted{socket_, POLLOUT, 0};
  if (result_ || ::poll(&wanted, 1, 0) == 0) return result_;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &length);
  return result_ = error;
}

}  // namespace millrace::io
