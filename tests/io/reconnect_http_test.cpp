// A web camera that breaks off and freezes.
#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <poll.h>

#include <gtest/gtest.h>
#include <opencv2/imgcodecs.hpp>

#include "io/source/source.h"
#include "tests/io/loopback.h"
#include "tests/io/reading.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

/// Endless pictures over HTTP on loopback, for one viewer at a time. The flags may be set by any
/// thread.
class WebCamera {
 public:
  WebCamera() {
    std::vector<std::uint8_t> picture;
    cv::imencode(".jpg", cv::Mat(48, 64, CV_8UC3, cv::Scalar(20, 200, 60)), picture);
    part_ = "--x\r\nContent-Type: image/jpeg\r\nContent-Length: " + std::to_string(picture.size()) +
            "\r\n\r\n" + std::string(picture.begin(), picture.end()) + "\r\n";
    if (!port_.listen()) throw std::runtime_error("no web camera");
    thread_ = std::thread([this] { serve(); });
  }
  ~WebCamera() {
    stop_ = true;
    thread_.join();
  }
  WebCamera(const WebCamera&) = delete;
  WebCamera& operator=(const WebCamera&) = delete;

  std::string uri() const {
    return "http://127.0.0.1:" + std::to_string(port_.number) + "/live.mjpg";
  }

  std::atomic<bool> hang_up{false};  ///< on the viewer; reset when done
  std::atomic<bool> frozen{false};   ///< sends nothing on open connections
  /// One part of these bytes comes next, which promises `length`; reset when sent.
  void send_once(const std::string& bytes, std::size_t length) {
    const std::lock_guard lock(mutex_);
    once_ = "--x\r\nContent-Type: image/jpeg\r\nContent-Length: " + std::to_string(length) +
            "\r\n\r\n" + bytes;
  }

 private:
  void serve() {
    Descriptor viewer;
    while (!stop_) {
      pollfd door{port_.socket.get(), POLLIN, 0};
      if (!viewer && !frozen && ::poll(&door, 1, 20) > 0) viewer = let_in();
      const bool hang = hang_up.exchange(false);
      if (viewer && (hang || (!frozen && !say(viewer, next_part())))) viewer.close();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  Descriptor let_in() const {
    Descriptor viewer(::accept4(port_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char request[4096];
    const bool asked = ::recv(viewer.get(), request, sizeof request, 0) > 0;
    const bool told = asked && say(viewer,
                                   "HTTP/1.0 200 OK\r\n"
                                   "Content-Type: multipart/x-mixed-replace;boundary=x\r\n\r\n");
    return told ? std::move(viewer) : Descriptor();
  }
  std::string next_part() {
    const std::lock_guard lock(mutex_);
    return once_.empty() ? part_ : std::exchange(once_, {});
  }
  static bool say(const Descriptor& to, const std::string& text) {
    return ::send(to.get(), text.data(), text.size(), MSG_NOSIGNAL) == ssize_t(text.size());
  }

  std::string part_;
  std::mutex mutex_;
  std::string once_;
  Port port_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(ReconnectHttp, AWebCameraIsLiveAndComeBackTo) {
  WebCamera camera;
  const auto source = open_source({.uri = camera.uri()});
  const auto health = source->health();
  EXPECT_TRUE(source->info().live);
  EXPECT_EQ(source->info().width, 64);
  const auto becomes = [&](const std::function<bool()>& what) { return read_until(*source, what); };
  EXPECT_TRUE(becomes([&] { return health->frames_since >= 20; }));

  camera.hang_up = true;
  EXPECT_TRUE(becomes([&] { return !health->connected; }));
  EXPECT_TRUE(becomes([&] { return health->reconnects == 1 && health->frames_since >= 20; }));

  camera.frozen = true;
  EXPECT_TRUE(becomes([&] { return !health->connected; }));
  EXPECT_EQ(health->last_error(), "no picture for 2.5 s");
  EXPECT_TRUE(becomes([&] { return health->attempts == 2; }));
  camera.hang_up = true;  // on the viewer that has left
  camera.frozen = false;
  EXPECT_TRUE(becomes([&] { return health->reconnects == 2; }));
  EXPECT_GT(health->lost_upstream, 0);
}

// Both would take gigabytes.
TEST(ReconnectHttp, APictureThatWouldFillTheMemoryIsABreak) {
  std::string bomb("\xff\xd8\xff\xe0\0\4ab\xff\xc0\0\x0b\x08\x3e\x80\x3e\x80\1\1\x11\0", 21);
  const std::string endless("\xff\xd8" + std::string(2 << 20, 'x'));
  for (const auto& [bytes, length, why] :
       {std::tuple(bomb, bomb.size(), "a picture of 16000x16000 has more pixels"),
        std::tuple(endless, std::size_t(2'000'000'000), "a picture has more bytes")}) {
    WebCamera camera;
    const auto source = open_source({.uri = camera.uri(), .max_pixels = 64 * 48});
    const auto health = source->health();
    EXPECT_TRUE(read_until(*source, [&] { return health->frames_since >= 10; }));
    camera.send_once(bytes, length);
    EXPECT_TRUE(read_until(*source, [&] { return health->breaks > 0; }));
    EXPECT_NE(health->last_error().find(why), std::string::npos) << health->last_error();
    EXPECT_TRUE(
        read_until(*source, [&] { return health->reconnects == 1 && health->frames_since >= 10; }));
  }
}

}  // namespace
}  // namespace millrace::io
