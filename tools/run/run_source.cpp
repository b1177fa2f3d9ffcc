#include "tools/run/run_source.h"

#include <chrono>  // silence
#include <cmath>   // llround

namespace millrace::tools {
namespace {

constexpr int kNewestCapacity = 1;  // "the newest" is one frame
constexpr int kNeverCapacity = 8;   // evens out a reader that decodes in bursts
// While one frame is learned from others come that are only predicted, and quickly made up for.
constexpr int kSkipCapacity = 4;

}  // namespace

io::SourceOptions source_options(const Config& config) {
  return {.uri = config.source.uri,
          .width = config.source.width,
          .height = config.source.height,
          .channels = config.source.channels,
          .fps = config.source.fps,
          .seed = config.source.seed,
          .reconnect = {
              .enabled = config.source.reconnect,
              .silence = std::chrono::milliseconds(std::llround(1e3 * config.source.silence_s))}};
}

bool paced_live(const Config& config, const io::SourceInfo& info) {
  return config.source.pace == "live" || (config.source.pace == "auto" && info.live);
}

io::Drop drop_policy(const Config& config, bool live) {
  const bool newest = config.source.drop == "newest" || (config.source.drop == "auto" && live);
  return newest ? io::Drop::newest : io::Drop::never;
}

int queue_capacity(const Config& config, io::Drop drop) {
  if (drop == io::Drop::never) return kNeverCapacity;
  return config.monitor.policy == "skip" ? kSkipCapacity : kNewestCapacity;
}

}  // namespace millrace::tools
