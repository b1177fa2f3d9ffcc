#pragma once

#include <nlohmann/json.hpp>

#include "tools/app/events/event.h"

namespace millrace::app {

/// The form used by webhooks, MQTT, reports and files beside snapshots.
inline nlohmann::ordered_json event_json(const NoveltyEvent& event) {
  using Seconds = std::chrono::duration<double>;
  nlohmann::ordered_json json = {{"kind", "unexpected"},
                                 {"event", event.event},
                                 {"frame", event.frame},
                                 {"time", Seconds(event.time.time_since_epoch()).count()},
                                 {"reason", name_of(event.reason)},
                                 {"deviation", event.deviation}};
  if (event.has_box()) {
    json["box"] = {event.left, event.top, event.width, event.height};
    json["size"] = {event.across, event.down};
    json["zone"] = event.zone;
  }
  return json;
}

}  // namespace millrace::app
