// What a run leaves: report.json, and a few lines for people.
#pragma once

#include <nlohmann/json.hpp>  // report

#include <cstdint>  // counts
#include <string>   // text

#include "engine/monitor/monitor.h"
#include "engine/trainer/trainer.h"
#include "io/source/stream_health.h"
#include "tools/run/real_time.h"
#include "tools/run/run_log.h"

namespace millrace::tools {

/// Every frame's fate: received = trained + dropped + rejected + in_flight.
struct RunFrames {
  std::int64_t received = 0;
  std::int64_t trained = 0;
  std::int64_t dropped = 0;         ///< a newer one took its place, or predicted only
  std::int64_t predicted_only = 0;  ///< of the dropped: predicted, and not learned from
  std::int64_t rejected = 0;
  std::int64_t in_flight() const { return received - trained - dropped - rejected; }
};

/// The report, as README explains it key by key.
nlohmann::ordered_json make_report(engine::Trainer& trainer, const RunFrames& frames,
                                   const RunLog& log, const RealTime& real_time);

/// Share of frames whose class was told: over the run, and of the last 100.
nlohmann::ordered_json accuracy_json(const RunLog& log);

/// How the connection to the source fared; apart from the exact counts of frames.
nlohmann::ordered_json source_json(const io::StreamHealth& health);

/// The same in a few lines, ending with the verdict.
std::string summarize(const nlohmann::ordered_json& report);

/// "T/N 12.3 ms, slowest stage 15.1 of 1/F 100 ms: HOLDS".
std::string rule_text(const engine::Reading& reading, const Verdict& verdict);

}  // namespace millrace::tools
