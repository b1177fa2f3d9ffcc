// Viewers as bare sockets, some of whom never read.
#pragma once

#include <cstdint>    // ports
#include <stdexcept>  // no connection
#include <string>     // the request
#include <thread>     // the one who reads
#include <vector>     // sockets

#include <arpa/inet.h>   // addresses
#include <sys/socket.h>  // sockets
#include <unistd.h>      // close

namespace millrace::page {

/// `count` viewers of the page on loopback, from its WebSocket's start on.
class RawViewers {
 public:
  RawViewers(std::uint16_t port, int count, bool reads) {
    const std::string request = "GET /live HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                                "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                                "Sec-WebSocket-Version: 13\r\n\r\n";
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < count; ++i) {
      sockets_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(sockets_.back(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
          ::send(sockets_.back(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
        throw std::runtime_error("a viewer could not connect");
      }
    }
    if (reads) reader_ = std::thread([this] { read(); });
  }
  ~RawViewers() {
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    if (reader_.joinable()) reader_.join();
    for (const int socket : sockets_) ::close(socket);
  }
  RawViewers(const RawViewers&) = delete;
  RawViewers& operator=(const RawViewers&) = delete;

 private:
  void read() const {
    // Asks for more, whatever came: a masked text message of no bytes.
    constexpr char kNext[] = {'\x81', '\x80', 0, 0, 0, 0};
    std::vector<char> bytes(1 << 16);
    while (::recv(sockets_.front(), bytes.data(), bytes.size(), 0) > 0) {
      if (::send(sockets_.front(), kNext, sizeof kNext, MSG_NOSIGNAL) < 0) return;
    }
  }

  std::vector<int> sockets_;
  std::thread reader_;
};

}  // namespace millrace::page
