#include "io/source/origin_probe.h"

#include <chrono>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds;

/// A port of its own, which listens when told to.
class Port {
 public:
  Port() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ::bind(socket_, reinterpret_cast<sockaddr*>(&address), length);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    number_ = ntohs(address.sin_port);
  }
  ~Port() { ::close(socket_); }
  void listen() { ::listen(socket_, 5); }
  std::string number() const { return std::to_string(number_); }

 private:
  int socket_;
  int number_ = 0;
};

bool answer(OriginProbe& probe) {
  for (;;) {
    if (const std::optional<bool> said = probe.poll()) return *said;
    std::this_thread::sleep_for(milliseconds(10));
  }
}

TEST(OriginProbe, APortIsThereOnceSomebodyListens) {
  Port port;
  for (const std::string before : {"rtsp://", "http://user:pass%40word@"}) {
    const auto probe = make_origin_probe(before + "127.0.0.1:" + port.number() + "/path:8?a@b#c");
    ASSERT_TRUE(probe);
    if (before == "rtsp://") {
      EXPECT_FALSE(answer(*probe));
      EXPECT_FALSE(answer(*probe));
      port.listen();
    }
    EXPECT_TRUE(answer(*probe)) << before;
  }
  EXPECT_TRUE(answer(*make_origin_probe("rtsp://localhost:" + port.number())))
      << "of several addresses";
  EXPECT_FALSE(answer(*make_origin_probe("rtsp://[::1]:1/x")));
}

TEST(OriginProbe, ADeviceIsThereOrNot) {
  const TestFolder folder;
  const auto probe = make_origin_probe("v4l2://" + folder / "video0");
  EXPECT_FALSE(answer(*probe));
  put_bytes(folder / "video0", "x");
  EXPECT_TRUE(answer(*probe));
}

TEST(OriginProbe, NothingToAskIsSaid) {
  EXPECT_FALSE(make_origin_probe("gst:videotestsrc"));
  EXPECT_FALSE(make_origin_probe("rtsp://no host at all/x"));
  EXPECT_TRUE(make_origin_probe("rtsp://127.0.0.1/x")) << "by its usual port";
}

}  // namespace
}  // namespace millrace::io
