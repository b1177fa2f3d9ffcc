// Messages to an MQTT broker, and from it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::app {

/// "" if messages can go to `url`, else what is wrong with it.
std::string mqtt_error(const std::string& url);
/// "" if messages can be published to `topic`, or to topics that begin so, else what is wrong.
std::string topic_error(const std::string& topic);

struct MqttMessage {
  std::string topic, text;
  bool retain = false;  ///< the broker keeps it for those who subscribe later
};

struct MqttOptions {
  std::string url;       ///< mqtt://[USER:PASSWORD@]HOST[:PORT]
  std::string presence;  ///< topic: "online" while connected, else "offline", retained; "": none
  std::vector<MqttMessage> births;  ///< published at each connection
  std::string subscription;         ///< filter of topics; "": none
  /// Of the subscription; inside work().
  std::function<void(std::string_view topic, std::string_view text)> heard;
};

/// A connection that comes back by itself. Thread-bound. Its destructor says that it is offline and
/// disconnects: a second at most.
class MqttClient {
 public:
  virtual ~MqttClient() = default;
  /// Receives, sends and, a second after a failure, connects again. Returns after `limit`, later
  /// only where the name service is silent, and then a second.
  virtual void work(std::chrono::milliseconds limit) = 0;
  virtual bool connected() const = 0;
  /// "WHERE: cause" of the latest failure, without the password; "" while connected.
  virtual const std::string& error() const = 0;
  /// Sends in work(), at least once. Dropped if not connected.
  virtual void publish(const MqttMessage& message) = 0;
  /// All that was published has been confirmed.
  virtual bool idle() const = 0;
};
/// Throws std::runtime_error if this build has no client.
std::unique_ptr<MqttClient> mqtt_client(MqttOptions options);

/// Publishes one message over a connection of its own and waits for the confirmation, `limit` at
/// most. Throws std::runtime_error "WHERE: cause", without the password.
void publish(const std::string& url, const std::string& topic, const std::string& text,
             std::chrono::milliseconds limit);

}  // namespace millrace::app
