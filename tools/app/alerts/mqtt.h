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

/// A connection that comes back by itself. Thread-bound.
class MqttClient {
 public:
  explicit MqttClient(MqttOptions options);
  /// Says that it is offline and disconnects: a second at most.
  ~MqttClient();

  /// Receives, sends and, a second after a failure, connects again. Returns after `limit`, later
  /// only where the name service is silent, and then a second.
  void work(std::chrono::milliseconds limit);
  bool connected() const;
  /// "WHERE: cause" of the latest failure, without the password; "" while connected.
  const std::string& error() const;
  /// Sends in work(), at least once. Dropped if not connected.
  void publish(const MqttMessage& message);
  /// All that was published has been confirmed.
  bool idle() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Publishes one message over a connection of its own and waits for the confirmation, `limit` at
/// most. Throws std::runtime_error "WHERE: cause", without the password.
void publish(const std::string& url, const std::string& topic, const std::string& text,
             std::chrono::milliseconds limit);

}  // namespace millrace::app
