#include "io/source/reach.h"

#include <chrono>  // patience
#include <string>  // URIs
#include <thread>  // sleeping

#include <arpa/inet.h>   // addresses
#include <sys/socket.h>  // a server
#include <unistd.h>      // close

#include <gtest/gtest.h>

#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds;

/// Bound from the start, so that the port is its own; listens when told.
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

bool answer(Reach& reach) {
  for (;;) {
    if (const std::optional<bool> said = reach.poll()) return *said;
    std::this_thread::sleep_for(milliseconds(10));
  }
}

TEST(Reach, APortIsThereOnceSomebodyListens) {
  Port port;
  for (const std::string before : {"rtsp://", "http://user:pass%40word@"}) {
    const auto reach = make_reach(before + "127.0.0.1:" + port.number() + "/path:8?a@b#c");
    ASSERT_TRUE(reach);
    if (before == "rtsp://") {
      EXPECT_FALSE(answer(*reach));
      EXPECT_FALSE(answer(*reach));
      port.listen();
    }
    EXPECT_TRUE(answer(*reach)) << before;
  }
  EXPECT_TRUE(answer(*make_reach("rtsp://localhost:" + port.number()))) << "of several addresses";
  EXPECT_FALSE(answer(*make_reach("rtsp://[::1]:1/x")));
}

TEST(Reach, ADeviceIsThereOrNot) {
  const TestFolder folder;
  const auto reach = make_reach("v4l2://" + folder / "video0");
  EXPECT_FALSE(answer(*reach));
  put_bytes(folder / "video0", "x");
  EXPECT_TRUE(answer(*reach));
}

TEST(Reach, NothingToAskIsSaid) {
  EXPECT_FALSE(make_reach("gst:videotestsrc"));
  EXPECT_FALSE(make_reach("rtsp://no host at all/x"));
  EXPECT_TRUE(make_reach("rtsp://127.0.0.1/x")) << "by its usual port";
}

}  // namespace
}  // namespace millrace::io
