#include <stdexcept>

#include "tools/app/alerts/mqtt.h"

namespace millrace::app {

struct MqttClient::Parts {
  std::string error;
};

std::string mqtt_error(const std::string&) {
  return "this build has no libmosquitto";
}
std::string topic_error(const std::string&) {
  return "";
}

MqttClient::MqttClient(MqttOptions options) {
  throw std::runtime_error(mqtt_error(options.url));
}
MqttClient::~MqttClient() = default;
void MqttClient::work(std::chrono::milliseconds) {}
bool MqttClient::connected() const {
  return false;
}
const std::string& MqttClient::error() const {
  return parts_->error;
}
void MqttClient::publish(const MqttMessage&) {}
bool MqttClient::idle() const {
  return true;
}

void publish(const std::string& url, const std::string&, const std::string&,
             std::chrono::milliseconds) {
  MqttClient({.url = url});
}

}  // namespace millrace::app
