#include <stdexcept>

#include "tools/app/alerts/mqtt.h"

namespace millrace::app {

std::string mqtt_error(const std::string&) {
  return "this build has no libmosquitto";
}

void publish(const std::string& url, const std::string&, const std::string&,
             std::chrono::milliseconds) {
  throw std::runtime_error(mqtt_error(url));
}

}  // namespace millrace::app
