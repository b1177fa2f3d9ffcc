// Posts to another program over HTTP.
#pragma once

#include <chrono>
#include <string>

namespace millrace::app {

/// "", or an error unless `url` is http://[USER:PASSWORD@]HOST[:PORT][/PATH].
std::string webhook_error(const std::string& url);

/// POSTs JSON and waits for the response, at most for `limit` in all. USER:PASSWORD become basic
/// authorisation. Throws std::runtime_error "URL: cause", without credentials, also if the response
/// is not 2xx. Blocks. Thread-safe.
void post_json(const std::string& url, const std::string& json, std::chrono::milliseconds limit);

}  // namespace millrace::app
