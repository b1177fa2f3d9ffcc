#include <stdexcept>

#include "tools/app/alerts/channels.h"

namespace millrace::app {

std::string mqtt_error(const std::string&) {
  return "this build has no libmosquitto";
}
std::string topic_error(const std::string&) {
  return "";
}
std::unique_ptr<MqttClient> mqtt_client(MqttOptions options) {
  throw std::runtime_error(mqtt_error(options.url));
}

}  // namespace millrace::app
