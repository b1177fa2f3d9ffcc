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

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <opencv2/imgcodecs.hpp>

namespace millrace::io {

/// Serves one viewer at a time. The flags may be set by any thread.
class WebCamera {
 public:
  WebCamera() {
    std::vector<std::uint8_t> picture;
    cv::imencode(".jpg", cv::Mat(48, 64, CV_8UC3, cv::Scalar(20, 200, 60)), picture);
    part_ = "--x\r\nContent-Type: image/jpeg\r\nContent-Length: " + std::to_string(picture.size()) +
            "\r\n\r\n" + std::string(picture.begin(), picture.end()) + "\r\n";
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ::bind(socket_, reinterpret_cast<sockaddr*>(&address), length);
    if (::listen(socket_, 5) != 0) throw std::runtime_error("no web camera");
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~WebCamera() {
    stop_ = true;
    thread_.join();
    ::close(socket_);
  }
  WebCamera(const WebCamera&) = delete;
  WebCamera& operator=(const WebCamera&) = delete;

  std::string uri() const { return "http://127.0.0.1:" + std::to_string(port_) + "/live.mjpg"; }

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
    int viewer = -1;
    while (!stop_) {
      pollfd door{socket_, POLLIN, 0};
      if (viewer < 0 && !frozen && ::poll(&door, 1, 20) > 0) viewer = let_in();
      const bool hang = hang_up.exchange(false);
      if (viewer >= 0 && (hang || (!frozen && !say(viewer, next_part())))) {
        ::close(viewer);
        viewer = -1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (viewer >= 0) ::close(viewer);
  }
  int let_in() const {
    const int viewer = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    char request[4096];
    const bool asked = ::recv(viewer, request, sizeof request, 0) > 0;
    if (asked && say(viewer,
                     "HTTP/1.0 200 OK\r\n"
                     "Content-Type: multipart/x-mixed-replace;boundary=x\r\n\r\n")) {
      return viewer;
    }
    ::close(viewer);
    return -1;
  }
  std::string next_part() {
    const std::lock_guard lock(mutex_);
    return once_.empty() ? part_ : std::exchange(once_, {});
  }
  static bool say(int to, const std::string& text) {
    return ::send(to, text.data(), text.size(), MSG_NOSIGNAL) == ssize_t(text.size());
  }

  std::string part_;
  std::mutex mutex_;
  std::string once_;
  int socket_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace millrace::io
