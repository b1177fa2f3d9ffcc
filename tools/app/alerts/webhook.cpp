#include "tools/app/alerts/webhook.h"

#include <algorithm>  // bounds
#include <optional>   // the answer
#include <stdexcept>  // failures
#include <utility>    // Boost 1.74 forgets it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/core/detail/base64.hpp>  // basic authorisation
#include <boost/beast/http.hpp>

#include "io/source/source.h"  // redacted
#include "io/source/uri.h"

namespace millrace::app {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::size_t kLongestAnswer = 64 << 10;

struct Target {
  io::Authority at;
  std::string path = "/";
};

Target target_of(const std::string& url) {
  const io::Uri uri = io::split_uri(url);
  Target target{.at = io::authority(uri)};
  const std::size_t slash = uri.rest.find('/', std::min<std::size_t>(2, uri.rest.size()));
  if (slash != std::string::npos) target.path = uri.rest.substr(slash);
  return target;
}

std::string base64(const std::string& text) {
  namespace detail = beast::detail::base64;
  std::string out(detail::encoded_size(text.size()), 0);
  out.resize(detail::encode(out.data(), text.data(), text.size()));
  return out;
}

http::request<http::string_body> request_of(const Target& target, const std::string& json) {
  http::request<http::string_body> request(http::verb::post, target.path, 11);
  const std::string& host = target.at.host;
  request.set(http::field::host, (host.find(':') == host.npos ? host : "[" + host + "]") +
                                     (target.at.port.empty() ? "" : ":" + target.at.port));
  request.set(http::field::user_agent, "millrace");
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  if (!target.at.user.empty())
    request.set(http::field::authorization,
                "Basic " + base64(target.at.user + ":" + target.at.password));
  request.body() = json;
  request.prepare_payload();
  return request;
}

asio::awaitable<unsigned> post(const Target target, const std::string json) {
  const auto executor = co_await asio::this_coro::executor;
  asio::ip::tcp::resolver resolver(executor);
  beast::tcp_stream stream(executor);
  // GCC 12 destroys temporaries of a co_await twice.
  const std::string port = target.at.port.empty() ? "80" : target.at.port;
  const auto found = co_await resolver.async_resolve(target.at.host, port, asio::use_awaitable);
  co_await stream.async_connect(found, asio::use_awaitable);
  const auto request = request_of(target, json);
  co_await http::async_write(stream, request, asio::use_awaitable);
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> answer;
  answer.body_limit(kLongestAnswer);
  co_await http::async_read_header(stream, buffer, answer, asio::use_awaitable);
  co_return answer.get().result_int();
}

}  // namespace

std::string webhook_error(const std::string& url) {
  const io::Uri uri = io::split_uri(url);
  if (uri.scheme == "https")
    return "https:// needs a proxy beside; http:// is what can be posted to";
  if (uri.scheme != "http" || io::authority(uri).host.empty())
    return "must be http://HOST[:PORT][/PATH]";
  return "";
}

void post_json(const std::string& url, const std::string& json, std::chrono::milliseconds limit) {
  const std::string where = io::redacted(url);
  asio::io_context context;
  std::optional<unsigned> status;
  std::string error;
  asio::co_spawn(context, post(target_of(url), json),
                 [&](std::exception_ptr failed, unsigned answer) {
                   try {
                     if (failed) std::rethrow_exception(failed);
                     status = answer;
                   } catch (const std::exception& e) {
                     error = e.what();
                   }
                 });
  context.run_for(limit);
  if (!error.empty()) throw std::runtime_error(where + ": " + error);
  if (!status) {
    throw std::runtime_error(where + ": no answer within " + std::to_string(limit.count()) + " ms");
  }
  if (*status < 200 || *status > 299)
    throw std::runtime_error(where + ": answered " + std::to_string(*status));
}

}  // namespace millrace::app
