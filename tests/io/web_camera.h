// A web camera for tests: endless pictures over HTTP on loopback.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>

#include <opencv2/imgcodecs.hpp>

#include "tests/io/loopback.h"

namespace millrace::io {

/// Serves one viewer at a time. The flags may be set by any thread.
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

}  // namespace millrace::io
