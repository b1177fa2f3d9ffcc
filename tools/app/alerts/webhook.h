// Tells another program by HTTP.
#pragma once

#include <chrono>  // how long it may take
#include <string>  // text

namespace millrace::app {

/// "" if `url` can be posted to, else what is wrong: it must be http://HOST[:PORT][/PATH].
std::string webhook_error(const std::string& url);

/// POSTs JSON and waits for the answer, at most for `limit` in all. user:password@ in the URL goes
/// as basic authorisation. Throws std::runtime_error "URL: cause", without credentials; an answer
/// other than 2xx is an error. Blocks; any thread.
void post_json(const std::string& url, const std::string& json, std::chrono::milliseconds limit);

}  // namespace millrace::app
