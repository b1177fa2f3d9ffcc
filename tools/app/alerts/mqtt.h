// Tells an MQTT broker.
#pragma once

#include <chrono>  // how long it may take
#include <string>  // text

namespace millrace::app {

/// "" if `url` can be published to, else what is wrong: it must be
/// mqtt://[USER:PASSWORD@]HOST[:PORT], and this build must have libmosquitto.
std::string mqtt_error(const std::string& url);

/// Publishes `text` once, QoS 1, and waits until the broker has it, at most for `limit`. Throws
/// std::runtime_error "URL: cause", without credentials. Blocks; one thread at a time.
void publish(const std::string& url, const std::string& topic, const std::string& text,
             std::chrono::milliseconds limit);

}  // namespace millrace::app
