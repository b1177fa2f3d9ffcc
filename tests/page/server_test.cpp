// The server from inside: what it is served by may fail.
#include "tools/page/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <stdexcept>
#include <thread>

namespace millrace::page {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;

unsigned status_of(std::uint16_t port, const std::string& path) {
  net::io_context context;
  net::ip::tcp::socket socket(context);
  socket.connect({net::ip::address_v4::loopback(), port});
  http::request<http::empty_body> request(http::verb::get, path, 11);
  request.set(http::field::host, "localhost");
  http::write(socket, request);
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> response;
  boost::system::error_code error;
  http::read(socket, buffer, response, error);
  return error ? 0 : response.result_int();
}

// As where memory is short for a moment.
TEST(WebServer, AFailureForAMomentDoesNotFreezeThePage) {
  std::atomic<bool> fails{false};
  std::atomic<int> looks{0};
  const auto server = start_server(web_options("127.0.0.1:0", ""), {.look = [&] {
                                     ++looks;
                                     if (fails) throw std::bad_alloc();
                                     return Snapshot{};
                                   }});
  EXPECT_EQ(status_of(server->port(), "/state"), 200u);
  fails = true;
  const int before = looks;
  while (looks < before + 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  fails = false;
  const int after = looks;  // nobody asks, and it looks again all the same
  while (looks < after + 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(status_of(server->port(), "/state"), 200u);
}

}  // namespace
}  // namespace millrace::page
