#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include <mosquitto.h>

#include "io/network/dial.h"
#include "io/source/source.h"  // redacted
#include "io/source/uri.h"
#include "tools/app/alerts/mqtt.h"

namespace millrace::app {
namespace {

constexpr int kKeepAliveSeconds = 10;

/// Shared by the library's thread and the waiting one.
struct Delivery {
  std::mutex mutex;
  std::condition_variable changed;
  std::string topic, text;
  bool done = false;
  std::string error;

  void finish(const std::string& what) {
    const std::lock_guard lock(mutex);
    if (done) return;
    done = true;
    error = what;
    changed.notify_all();
  }
};

void on_connect(mosquitto* client, void* object, int code) {
  Delivery& delivery = *static_cast<Delivery*>(object);
  if (code != 0) return delivery.finish(mosquitto_connack_string(code));
  const int failed = mosquitto_publish(client, nullptr, delivery.topic.c_str(),
                                       int(delivery.text.size()), delivery.text.data(), 1, false);
  if (failed) delivery.finish(mosquitto_strerror(failed));
}

void on_publish(mosquitto*, void* object, int) {
  static_cast<Delivery*>(object)->finish("");
}

struct Destroy {
  void operator()(mosquitto* client) const {
    mosquitto_disconnect(client);
    mosquitto_loop_stop(client, true);
    mosquitto_destroy(client);
  }
};

}  // namespace

std::string mqtt_error(const std::string& url) {
  const io::Uri uri = io::split_uri(url);
  const std::string wrong = uri.scheme == "mqtt" ? io::authority_error(uri) : "is not mqtt";
  return wrong.empty() ? "" : wrong + "; must be mqtt://[USER:PASSWORD@]HOST[:PORT]";
}

void publish(const std::string& url, const std::string& topic, const std::string& text,
             std::chrono::milliseconds limit) {
  static const int started = mosquitto_lib_init();
  const std::string where = io::redacted(url);
  const auto require = [&](int code) {
    if (code != MOSQ_ERR_SUCCESS) throw std::runtime_error(where + ": " + mosquitto_strerror(code));
  };
  require(started);
  Delivery delivery{.topic = topic, .text = text};
  const std::unique_ptr<mosquitto, Destroy> client(mosquitto_new(nullptr, true, &delivery));
  if (!client) throw std::runtime_error(where + ": no client");
  mosquitto_connect_callback_set(client.get(), on_connect);
  mosquitto_publish_callback_set(client.get(), on_publish);
  const io::Authority at = io::authority(io::split_uri(url));
  // Asked here, since the library would wait for a silent name service.
  const auto found = io::addresses_of(at.host, "1883", limit);
  if (!found || found->empty())
    throw std::runtime_error(where + (found ? ": unknown host" : ": the name service is silent"));
  if (!at.user.empty())
    require(mosquitto_username_pw_set(client.get(), at.user.c_str(), at.password.c_str()));
  require(mosquitto_connect_async(client.get(), io::numeric(found->front()).c_str(),
                                  at.port.empty() ? 1883 : std::stoi(at.port), kKeepAliveSeconds));
  require(mosquitto_loop_start(client.get()));
  std::unique_lock lock(delivery.mutex);
  if (!delivery.changed.wait_for(lock, limit, [&] { return delivery.done; })) {
    throw std::runtime_error(where + ": no confirmation by the broker within " +
                             std::to_string(limit.count()) + " ms");
  }
  if (!delivery.error.empty()) throw std::runtime_error(where + ": " + delivery.error);
}

}  // namespace millrace::app
