#include <stdexcept>

#include "tools/page/server.h"

namespace millrace::page {

std::unique_ptr<WebServer> start_server(const WebOptions& options, WebSubject) {
  throw std::runtime_error(options.address +
                           ": this build lacks Boost.Beast and cannot serve the page");
}

}  // namespace millrace::page
