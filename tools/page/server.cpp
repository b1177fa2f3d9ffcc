#include "tools/page/server.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "tools/page/crowd.h"

namespace millrace::page {
namespace {

constexpr int kSendBuffer = 64 << 10;  // bytes the kernel may hold for a viewer that does not read
constexpr int kNiceness = 10;          // training comes first
constexpr std::chrono::seconds kTurn{1};
constexpr std::chrono::milliseconds kRetry{100};

/// A listening socket, or -1 with errno set.
int listen_at(const WebOptions& options) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  const std::string port = std::to_string(options.port);
  errno = EINVAL;
  if (::getaddrinfo(options.address.c_str(), port.c_str(), &hints, &found) != 0) return -1;
  const int door = ::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool listens =
      ::bind(door, found->ai_addr, found->ai_addrlen) == 0 && ::listen(door, SOMAXCONN) == 0;
  const int cause = errno;
  ::freeaddrinfo(found);
  if (listens) return door;
  ::close(door);
  errno = cause;
  return -1;
}

std::uint16_t port_of(int door) {
  sockaddr_storage at{};
  socklen_t length = sizeof at;
  ::getsockname(door, reinterpret_cast<sockaddr*>(&at), &length);
  return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                                        : reinterpret_cast<sockaddr_in&>(at).sin_port);
}

}  // namespace

struct WebServer::Parts {
  struct Descriptor {
    explicit Descriptor(int fd) : fd(fd) {}
    ~Descriptor() {
      if (fd >= 0) ::close(fd);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    const int fd;
  };

  Parts(const WebOptions& web_options, WebSubject web_subject)
      : options(web_options),
        subject(std::move(web_subject)),
        door(listen_at(options)),
        port(door.fd < 0 ? 0 : port_of(door.fd)),
        gate(options, port) {
    if (door.fd < 0 || bell.fd < 0) {
      throw std::runtime_error(options.address + ":" + std::to_string(options.port) + ": " +
                               std::strerror(errno));
    }
    thread = std::thread([this] { run(); });
  }
  ~Parts() {
    if (thread.joinable()) {
      ::eventfd_write(bell.fd, 1);
      thread.join();
    }
  }

  void run() {
    pthread_setname_np(pthread_self(), "millrace-web");
    setpriority(PRIO_PROCESS, 0, kNiceness);  // on Linux: of this thread
    pollfd others[] = {{bell.fd, POLLIN, 0}, {door.fd, POLLIN, 0}};
    while (!others[0].revents) {
      try {
        crowd.turn(others, kTurn);
        if (others[1].revents) let_in();
      } catch (const std::exception&) {  // memory is short: the page must not freeze for good
        std::this_thread::sleep_for(kRetry);
      }
    }
  }

  void let_in() {
    int socket;
    while ((socket = ::accept4(door.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
      const int on = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      crowd.admit(socket);
    }
    if (errno != EAGAIN) std::this_thread::sleep_for(kRetry);  // no descriptors left, say
  }

  const WebOptions options;
  const WebSubject subject;
  const Descriptor door;
  const Descriptor bell{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  ///< rung to stop
  const std::uint16_t port;
  const Gate gate;
  Crowd crowd{gate, subject};
  std::thread thread;
};

WebServer::WebServer(const WebOptions& options, WebSubject subject)
    : parts_(std::make_unique<Parts>(options, std::move(subject))) {}
WebServer::~WebServer() = default;

std::uint16_t WebServer::port() const {
  return parts_->port;
}

std::string WebServer::url() const {
  const std::string& at = parts_->options.address;
  const std::string host = at.find(':') == std::string::npos ? at : "[" + at + "]";
  return "http://" + host + ":" + std::to_string(port()) + "/";
}

int WebServer::viewers() const {
  return parts_->crowd.viewers();
}

}  // namespace millrace::page
