// Publishes to an MQTT broker.
#pragma once

#include <chrono>
#include <string>

namespace millrace::app {

/// "", or an error unless `url` is mqtt://[USER:PASSWORD@]HOST[:PORT] and this build has
/// libmosquitto.
std::string mqtt_error(const std::string& url);

/// Publishes `text` once, QoS 1, and waits until the broker has it, at most for `limit`. Throws
/// std::runtime_error "URL: cause", without credentials. Blocks; one thread at a time.
void publish(const std::string& url, const std::string& topic, const std::string& text,
             std::chrono::milliseconds limit);

}  // namespace millrace::app
