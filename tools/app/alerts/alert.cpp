#include "tools/app/alerts/alert.h"

#include <nlohmann/json.hpp>  // the text

#include "io/source/source.h"  // redacted

namespace millrace::app {

std::string alert_json(const Alert& alert, const std::string& source) {
  using Seconds = std::chrono::duration<double>;
  const nlohmann::ordered_json json = {{"kind", "unexpected"},
                                       {"event", alert.event},
                                       {"frame", alert.frame},
                                       {"source_frame", alert.source_frame},
                                       {"time", Seconds(alert.time.time_since_epoch()).count()},
                                       {"loss", alert.loss},  // nan is written as null
                                       {"deviation", alert.deviation},
                                       {"snapshot", alert.snapshot},
                                       {"source", io::redacted(source)}};
  // A path need not be UTF-8.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace millrace::app
