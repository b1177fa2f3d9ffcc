// A build without the libraries that the page takes.
#include <stdexcept>  // refusal

#include "tools/page/server.h"

namespace millrace::page {

struct WebServer::Parts {};

WebServer::WebServer(const WebOptions& options, WebSubject) {
  throw std::runtime_error(options.address + ": this build has no Boost.Beast and serves no page");
}
WebServer::~WebServer() = default;
std::uint16_t WebServer::port() const {
  return 0;
}
std::string WebServer::url() const {
  return "";
}
int WebServer::viewers() const {
  return 0;
}

}  // namespace millrace::page
