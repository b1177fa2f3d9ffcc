#include "io/network/dial.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <thread>

namespace millrace::io {

bool is_loopback(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  if (::inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
}

int connection_limit(int most) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return most;
  return int(std::min<rlim_t>(rlim_t(most), std::max<rlim_t>(files.rlim_cur / 4, 1)));
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

std::optional<std::vector<Address>> addresses_of(const std::string& host, const std::string& port,
                                                 std::chrono::milliseconds limit) {
  std::packaged_task<std::vector<Address>()> ask([=] { return addresses_of(host, port); });
  std::future<std::vector<Address>> answer = ask.get_future();
  std::thread(std::move(ask)).detach();
  if (answer.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return answer.get();
}

std::string numeric(const Address& address) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address.bytes), address.length, host,
                sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

Dial::Dial(const Address& to)
    : socket_(::socket(to.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  const bool connected =
      socket_ &&
      ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to.bytes), to.length) == 0;
  if (connected || errno != EINPROGRESS) result_ = connected ? 0 : errno;
}

std::optional<int> Dial::result() {
  pollfd wanted{socket_.get(), POLLOUT, 0};
  if (result_ || ::poll(&wanted, 1, 0) == 0) return result_;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return result_ = error;
}

}  // namespace millrace::io
