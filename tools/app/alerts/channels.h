#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::app {

/// "" if `url` is http://[USER:PASSWORD@]HOST[:PORT][/PATH], otherwise what is wrong with it.
std::string webhook_error(const std::string& url);

/// POSTs JSON and waits for the response, at most `limit` in total. USER:PASSWORD becomes basic
/// authorisation. Throws std::runtime_error "URL: cause", without credentials, also for responses
/// other than 2xx. Thread-safe.
void post_json(const std::string& url, const std::string& json, std::chrono::milliseconds limit);

/// "" if `url` is a valid broker, otherwise what is wrong with it.
std::string mqtt_error(const std::string& url);
/// "" if messages can be published to `topic`, or to topics that begin with it; else the fault.
std::string topic_error(const std::string& topic);

struct MqttMessage {
  std::string topic, text;
  bool retain = false;  ///< the broker stores it for later subscribers
};

struct MqttOptions {
  std::string url;                  ///< mqtt://[USER:PASSWORD@]HOST[:PORT]
  std::string presence;             ///< topic of a retained "online" or "offline"; "": none
  std::vector<MqttMessage> births;  ///< published on every connect
  std::string subscription;         ///< topic filter; "": none
  /// Receives the subscription's messages, inside work().
  std::function<void(std::string_view topic, std::string_view text)> heard;
};

/// A connection that reconnects by itself. Thread-bound. The destructor publishes "offline" and
/// disconnects, within a second.
class MqttClient {
 public:
  virtual ~MqttClient() = default;
  /// Receives, sends and reconnects a second after a failure. Returns after `limit`, or up to a
  /// second later if the name service doesn't answer.
  virtual void work(std::chrono::milliseconds limit) = 0;
  virtual bool connected() const = 0;
  /// "WHERE: cause" of the latest failure, without the password; "" while connected.
  virtual const std::string& error() const = 0;
  /// Sent by work(), at least once. Dropped if not connected.
  virtual void publish(const MqttMessage& message) = 0;
  /// Whether everything published has been confirmed.
  virtual bool idle() const = 0;
};
/// Throws std::runtime_error if this build has no client.
std::unique_ptr<MqttClient> mqtt_client(MqttOptions options);

/// Publishes one message over its own connection and waits for the confirmation, at most `limit`.
/// Throws std::runtime_error "WHERE: cause", without the password.
void publish(const std::string& url, const std::string& topic, const std::string& text,
             std::chrono::milliseconds limit);

}  // namespace millrace::app
