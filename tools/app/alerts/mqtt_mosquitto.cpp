#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

#include <mosquitto.h>

#include "io/network/dial.h"
#include "io/source/source.h"  // redacted
#include "io/source/uri.h"
#include "tools/app/alerts/mqtt.h"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kKeepAliveSeconds = 10;
constexpr int kAtLeastOnce = 1;
constexpr auto kRetry = 1s;

}  // namespace

std::string mqtt_error(const std::string& url) {
  const io::Uri uri = io::split_uri(url);
  const std::string wrong = uri.scheme == "mqtt" ? io::authority_error(uri) : "is not mqtt";
  return wrong.empty() ? "" : wrong + "; must be mqtt://[USER:PASSWORD@]HOST[:PORT]";
}

std::string topic_error(const std::string& topic) {
  if (topic.empty() || topic.find('\0') != std::string::npos || topic.front() == '$' ||
      mosquitto_pub_topic_check(topic.c_str()) != MOSQ_ERR_SUCCESS)
    return "must be a topic: text without + and #, which does not begin with $";
  return "";
}

struct MqttClient::Parts {
  const MqttOptions options;
  const std::string where = io::redacted(options.url);
  mosquitto* client = nullptr;
  bool connected = false;
  bool dialled = false;
  int unconfirmed = 0;
  Clock::time_point next_try;
  std::vector<io::Address> addresses;  ///< of the broker, still to be tried
  std::string error = where + ": not connected yet";

  void fail(const std::string& cause) {
    connected = dialled = false;
    unconfirmed = 0;
    if (!addresses.empty()) return;  // the next one may answer
    error = where + ": " + cause;
    next_try = Clock::now() + kRetry;
  }

  void send(const MqttMessage& message) {
    const int failed =
        mosquitto_publish(client, nullptr, message.topic.c_str(), int(message.text.size()),
                          message.text.data(), kAtLeastOnce, message.retain);
    if (failed == MOSQ_ERR_SUCCESS) ++unconfirmed;
  }

  void dial() {
    const io::Authority at = io::authority(io::split_uri(options.url));
    // Asked here, since the library would wait for a silent name service.
    if (addresses.empty()) {
      const auto found = io::addresses_of(at.host, "1883", kRetry);
      if (!found || found->empty())
        return fail(found ? "unknown host" : "the name service is silent");
      addresses = *found;
    }
    const std::string address = io::numeric(addresses.front());
    addresses.erase(addresses.begin());
    const int failed = mosquitto_connect_async(
        client, address.c_str(), at.port.empty() ? 1883 : std::stoi(at.port), kKeepAliveSeconds);
    if (failed) return fail(mosquitto_strerror(failed));
    dialled = true;
  }

  static void on_connect(mosquitto*, void* object, int code) {
    Parts& parts = *static_cast<Parts*>(object);
    if (code != 0) return parts.fail(mosquitto_connack_string(code));
    parts.connected = true;
    parts.error.clear();
    parts.addresses.clear();
    if (!parts.options.presence.empty()) parts.send({parts.options.presence, "online", true});
    for (const MqttMessage& birth : parts.options.births) parts.send(birth);
    const std::string& topic = parts.options.subscription;
    if (!topic.empty()) mosquitto_subscribe(parts.client, nullptr, topic.c_str(), kAtLeastOnce);
  }
  static void on_publish(mosquitto*, void* object, int) {
    --static_cast<Parts*>(object)->unconfirmed;
  }
  static void on_message(mosquitto*, void* object, const mosquitto_message* message) {
    if (message->retain) return;  // a wish of long ago
    static_cast<Parts*>(object)->options.heard(
        message->topic,
        {static_cast<const char*>(message->payload), std::size_t(message->payloadlen)});
  }
};

MqttClient::MqttClient(MqttOptions options)
    : parts_(std::make_unique<Parts>(Parts{.options = std::move(options)})) {
  [[maybe_unused]] static const int started = mosquitto_lib_init();
  parts_->client = mosquitto_new(nullptr, true, parts_.get());
  if (!parts_->client) throw std::runtime_error(parts_->where + ": no client");
  mosquitto* const client = parts_->client;
  mosquitto_connect_callback_set(client, Parts::on_connect);
  mosquitto_publish_callback_set(client, Parts::on_publish);
  mosquitto_message_callback_set(client, Parts::on_message);
  const io::Authority at = io::authority(io::split_uri(parts_->options.url));
  if (!at.user.empty()) mosquitto_username_pw_set(client, at.user.c_str(), at.password.c_str());
  if (const std::string& topic = parts_->options.presence; !topic.empty())
    mosquitto_will_set(client, topic.c_str(), 7, "offline", kAtLeastOnce, true);
}

MqttClient::~MqttClient() {
  if (!parts_->options.presence.empty()) publish({parts_->options.presence, "offline", true});
  for (const auto end = Clock::now() + 1s; connected() && !idle() && Clock::now() < end;)
    work(10ms);
  mosquitto_disconnect(parts_->client);
  mosquitto_destroy(parts_->client);
}

void MqttClient::work(std::chrono::milliseconds limit) {
  Parts& parts = *parts_;
  const Clock::time_point end = Clock::now() + limit;
  do {
    if (!parts.dialled) {
      if (Clock::now() >= parts.next_try) parts.dial();
      if (!parts.dialled) {
        std::this_thread::sleep_until(std::min(end, parts.next_try));
        continue;
      }
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    const int failed = mosquitto_loop(parts.client, int(std::max(0ms, left).count()), 1);
    if (failed && parts.dialled) parts.fail(mosquitto_strerror(failed));
  } while (Clock::now() < end);
}

bool MqttClient::connected() const {
  return parts_->connected;
}

const std::string& MqttClient::error() const {
  return parts_->error;
}

void MqttClient::publish(const MqttMessage& message) {
  if (connected()) parts_->send(message);
}

bool MqttClient::idle() const {
  return parts_->unconfirmed <= 0;
}

void publish(const std::string& url, const std::string& topic, const std::string& text,
             std::chrono::milliseconds limit) {
  MqttClient client({.url = url});
  bool sent = false;
  for (const auto end = Clock::now() + limit; Clock::now() < end && !(sent && client.idle());) {
    client.work(std::min(10ms, limit));
    if (client.connected() && !std::exchange(sent, true)) client.publish({topic, text});
  }
  if (!client.error().empty()) throw std::runtime_error(client.error());
  if (!sent || !client.idle()) {
    throw std::runtime_error(io::redacted(url) + ": no confirmation by the broker within " +
                             std::to_string(limit.count()) + " ms");
  }
}

}  // namespace millrace::app
