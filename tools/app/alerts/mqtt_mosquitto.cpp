#include <algorithm>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include <mosquitto.h>

#include "engine/format.h"
#include "io/network/dial.h"
#include "io/source/source.h"
#include "io/source/uri.h"
#include "tools/app/alerts/channels.h"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kKeepAliveSeconds = 10;
constexpr int kAtLeastOnce = 1;
constexpr auto kRetry = 1s;

class Client final : public MqttClient {
 public:
  explicit Client(MqttOptions options) : options_(std::move(options)) {
    [[maybe_unused]] static const int started = mosquitto_lib_init();
    // With one name for all connections, the broker ends a lost one as soon as the next connects.
    client_ =
        mosquitto_new(engine::format("millrace%08x", std::random_device{}()).c_str(), true, this);
    if (!client_) throw std::runtime_error(where_ + ": no client");
    mosquitto_connect_callback_set(client_, on_connect);
    mosquitto_publish_callback_set(
        client_, [](mosquitto*, void* self, int) { --static_cast<Client*>(self)->unconfirmed_; });
    mosquitto_message_callback_set(client_, on_message);
    if (!at_.user.empty())
      mosquitto_username_pw_set(client_, at_.user.c_str(), at_.password.c_str());
    if (const std::string& topic = options_.presence; !topic.empty())
      mosquitto_will_set(client_, topic.c_str(), 7, "offline", kAtLeastOnce, true);
  }
  ~Client() override {
    leaving_ = true;
    announce("offline");
    for (const auto end = Clock::now() + 1s; connected_ && !idle() && Clock::now() < end;)
      work(10ms);
    mosquitto_disconnect(client_);
    mosquitto_destroy(client_);
  }

  void work(std::chrono::milliseconds limit) override {
    const Clock::time_point end = Clock::now() + limit;
    do {
      if (!dialled_) {
        if (Clock::now() >= next_try_) dial();
        if (!dialled_) {
          std::this_thread::sleep_until(std::min(end, next_try_));
          continue;
        }
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
      const int failed = mosquitto_loop(client_, int(std::max(0ms, left).count()), 1);
      if (failed && dialled_)
        fail(failed == MOSQ_ERR_KEEPALIVE ? "the broker does not answer"
                                          : mosquitto_strerror(failed));
    } while (Clock::now() < end);
  }
  bool connected() const override { return connected_; }
  const std::string& error() const override { return error_; }
  void publish(const MqttMessage& message) override {
    if (!connected_) return;
    const int failed =
        mosquitto_publish(client_, nullptr, message.topic.c_str(), int(message.text.size()),
                          message.text.data(), kAtLeastOnce, message.retain);
    if (failed == MOSQ_ERR_SUCCESS) ++unconfirmed_;
  }
  bool idle() const override { return unconfirmed_ <= 0; }

 private:
  void fail(const std::string& cause) {
    connected_ = dialled_ = false;
    unconfirmed_ = 0;
    if (!addresses_.empty()) return;  // another address may answer
    error_ = where_ + ": " + cause;
    next_try_ = Clock::now() + kRetry;
  }
  void dial() {
    // The library's own look-up would block on a silent name service.
    if (addresses_.empty()) {
      const auto found = io::addresses_of(at_.host, "1883", kRetry);
      if (!found || found->empty())
        return fail(found ? "unknown host" : "the name service does not answer");
      addresses_ = *found;
    }
    const std::string address = io::numeric(addresses_.front());
    addresses_.erase(addresses_.begin());
    const int failed = mosquitto_connect_async(
        client_, address.c_str(), at_.port.empty() ? 1883 : std::stoi(at_.port), kKeepAliveSeconds);
    if (failed) return fail(mosquitto_strerror(failed));
    dialled_ = true;
  }

  void announce(const char* presence) {
    if (!options_.presence.empty()) publish({options_.presence, presence, true});
  }

  static void on_connect(mosquitto*, void* object, int code) {
    Client& self = *static_cast<Client*>(object);
    if (code != 0) return self.fail(mosquitto_connack_string(code));
    self.connected_ = true;
    self.error_.clear();
    self.addresses_.clear();
    self.announce("online");
    for (const MqttMessage& birth : self.options_.births) self.publish(birth);
    for (const std::string& topic : {self.options_.subscription, self.options_.presence})
      if (!topic.empty()) mosquitto_subscribe(self.client_, nullptr, topic.c_str(), kAtLeastOnce);
  }
  static void on_message(mosquitto*, void* object, const mosquitto_message* message) {
    Client& self = *static_cast<Client*>(object);
    const std::string_view text(static_cast<const char*>(message->payload),
                                std::size_t(message->payloadlen));
    if (message->topic == self.options_.presence) {
      // The will of a lost connection or of an earlier run arrives late.
      if (text != "online" && !self.leaving_) self.announce("online");
    } else if (!message->retain) {  // a retained request is old
      self.options_.heard(message->topic, text);
    }
  }

  const MqttOptions options_;
  const std::string where_ = io::redacted(options_.url);
  const io::Authority at_ = io::authority(io::split_uri(options_.url));
  mosquitto* client_ = nullptr;
  bool connected_ = false, dialled_ = false, leaving_ = false;
  int unconfirmed_ = 0;
  Clock::time_point next_try_;
  std::vector<io::Address> addresses_;
  std::string error_ = where_ + ": not connected yet";
};

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

std::unique_ptr<MqttClient> mqtt_client(MqttOptions options) {
  return std::make_unique<Client>(std::move(options));
}

}  // namespace millrace::app
