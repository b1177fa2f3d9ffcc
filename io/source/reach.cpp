#include "io/source/reach.h"

#include <cerrno>   // a connection under way
#include <chrono>   // how often
#include <cstring>  // addresses
#include <utility>  // std::move
#include <vector>   // addresses

#include <fcntl.h>       // non-blocking
#include <netdb.h>       // names
#include <netinet/in.h>  // protocols
#include <poll.h>        // has it connected
#include <sys/socket.h>  // connecting
#include <unistd.h>      // close, access

#include "io/source/source.h"  // ports by scheme
#include "io/source/uri.h"

namespace millrace::io {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kInterval(250);
// No answer for so long: a host that is off, or a cable that is out.
constexpr milliseconds kNoAnswer(1000);

struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

class PortReach : public Reach {
 public:
  explicit PortReach(std::vector<Address> addresses) : addresses_(std::move(addresses)) {}
  ~PortReach() override { hang_up(); }
  PortReach(const PortReach&) = delete;
  PortReach& operator=(const PortReach&) = delete;

  std::optional<bool> poll() override {
    const Clock::time_point now = Clock::now();
    if (socket_ < 0 && now < asked_ + kInterval) return std::nullopt;
    const std::optional<bool> answer = socket_ < 0 ? ask(now) : answered(now);
    if (!answer) return std::nullopt;
    hang_up();
    if (*answer) {
      next_ = 0;
      return true;
    }
    next_ = (next_ + 1) % addresses_.size();
    if (next_ == 0) return false;  // none of them
    return std::nullopt;
  }

 private:
  std::optional<bool> ask(Clock::time_point now) {
    asked_ = now;
    const Address& to = addresses_[next_];
    socket_ = ::socket(to.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket_ < 0) return false;
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&to.bytes), to.length) == 0)
      return true;
    if (errno == EINPROGRESS) return std::nullopt;
    return false;
  }

  std::optional<bool> answered(Clock::time_point now) const {
    pollfd wanted{socket_, POLLOUT, 0};
    if (::poll(&wanted, 1, 0) == 0) {
      if (now > asked_ + kNoAnswer) return false;
      return std::nullopt;
    }
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &length);
    return error == 0;
  }

  void hang_up() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  const std::vector<Address> addresses_;
  std::size_t next_ = 0;  // address to ask
  int socket_ = -1;       // open while an answer is awaited
  Clock::time_point asked_;
};

class DeviceReach : public Reach {
 public:
  explicit DeviceReach(std::string path) : path_(std::move(path)) {}
  std::optional<bool> poll() override { return ::access(path_.c_str(), R_OK) == 0; }

 private:
  const std::string path_;
};

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

}  // namespace

std::unique_ptr<Reach> make_reach(const std::string& uri) {
  const Uri parts = split_uri(uri);
  if (parts.scheme == "v4l2") return std::make_unique<DeviceReach>(file_path(parts));
  const SourceKind* const kind = source_kind(uri);
  const std::string usual = kind ? kind->port : "";
  if (usual.empty()) return nullptr;
  const Authority at = authority(parts);
  const std::string port = at.port.empty() ? usual : at.port;
  std::vector<Address> addresses = addresses_of(at.host, port);
  if (addresses.empty()) return nullptr;
  return std::make_unique<PortReach>(std::move(addresses));
}

}  // namespace millrace::io
