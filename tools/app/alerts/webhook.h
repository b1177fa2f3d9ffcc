#pragma once

#include <chrono>
#include <string>

namespace millrace::app {

/// "" if `url` is http://[USER:PASSWORD@]HOST[:PORT][/PATH], else what is wrong with it.
std::string webhook_error(const std::string& url);

/// POSTs JSON and waits for the response, at most `limit` in total. USER:PASSWORD becomes basic
/// authorisation. Throws std::runtime_error "URL: cause", without credentials, also for responses
/// other than 2xx. Thread-safe.
void post_json(const std::string& url, const std::string& json, std::chrono::milliseconds limit);

}  // namespace millrace::app
