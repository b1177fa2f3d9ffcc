// What the server shows may fail for a moment, as where memory is short.
#include "tools/page/server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "io/network/dial.h"

namespace millrace::page {
namespace {

/// The first bytes of the response to a GET.
std::string response_to(std::uint16_t port, const std::string& path) {
  io::Dial dial(io::addresses_of("127.0.0.1", std::to_string(port)).at(0));
  while (!dial.result()) std::this_thread::yield();
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  ::send(dial.socket(), request.data(), request.size(), MSG_NOSIGNAL);
  std::string bytes(100, 0);
  ssize_t length;
  while ((length = ::recv(dial.socket(), bytes.data(), bytes.size(), 0)) < 0 && errno == EAGAIN)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return bytes.substr(0, std::size_t(std::max<ssize_t>(0, length)));
}

TEST(WebServer, AFailureForAMomentDoesNotFreezeThePage) {
  std::atomic<bool> fails{false};
  std::atomic<int> looks{0};
  WebServer server(web_options("127.0.0.1:0", ""), {.look = [&] {
                     ++looks;
                     if (fails) throw std::bad_alloc();
                     return Snapshot{};
                   }});
  EXPECT_TRUE(response_to(server.port(), "/state").starts_with("HTTP/1.1 200 OK\r\n"));
  fails = true;
  const int before = looks;
  while (looks < before + 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  fails = false;
  const int after = looks;  // nobody asks, and it looks again all the same
  while (looks < after + 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(response_to(server.port(), "/state").starts_with("HTTP/1.1 200 OK\r\n"));
}

}  // namespace
}  // namespace millrace::page
