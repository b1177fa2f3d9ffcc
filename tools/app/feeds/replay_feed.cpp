#include "tools/app/feeds/replay_feed.h"

#include "engine/format.h"
#include "engine/plan/plan_text.h"
#include "tools/app/assembly.h"
#include "tools/app/memory_check.h"

namespace millrace::app {
namespace {

/// Bytes for all samples; 0: unknown.
double bytes_of(const Config& config, const engine::TrainerOptions& options) {
  const stages::ImageShape &sample = options.sample, &made = options.network->output();
  const auto bytes = [](const stages::ImageShape& shape, bool as_bytes) {
    return double(shape.channels) * double(shape.height) * double(shape.width) *
           (as_bytes ? 1.0 : double(sizeof(float)));
  };
  if (sample.height == 0 || sample.width == 0) return 0;
  if (replay_of(config, *options.network) == "ridge") {
    const int last = options.network->size() - 1;
    const auto inputs = double(options.network->parameters(last, last + 1)[0].shape[1]);
    // A frame's features, and their inner products with all others.
    return config.replay.size * (inputs * sizeof(float) + config.replay.size * sizeof(double));
  }
  const double one = bytes(sample, options.input_as_bytes) +
                     (options.target_is_input ? 0 : bytes(made, options.target_as_bytes));
  return one * config.replay.size;
}

}  // namespace

void require_replay_memory(const Config& config, const engine::TrainerOptions& options) {
  const double bytes = bytes_of(config, options), there = memory_there();
  if (replay_of(config, *options.network) == "none" || bytes <= there) return;
  throw config.error("replay.size", std::to_string(config.replay.size) + " samples take " +
                                        engine::plan::bytes_text(bytes) + "; the machine has " +
                                        engine::plan::bytes_text(there));
}

std::string describe_replay(const Config& config, const engine::TrainerOptions& options,
                            std::optional<bool> live) {
  const std::string kind = replay_of(config, *options.network);
  if (kind == "none") return "none";
  std::string text = kind + " of " + std::to_string(config.replay.size) +
                     (kind == "ridge" ? " labelled frames" : " samples");
  const double bytes = bytes_of(config, options);
  if (bytes > 0) text += ", " + engine::plan::bytes_text(bytes);
  if (kind == "ridge") return text + "; solves the last layer, the other weights stay";
  const bool is_auto = config.replay.share < 0;
  text += is_auto ? "; as many as" : engine::format("; %.3g of all samples", config.replay.share);
  if (live == false) {
    return is_auto ? text.substr(0, text.rfind(';')) +
                         "; none is replayed, since the stream waits for the pipeline: name a "
                         "replay.share"
                   : text;
  }
  text += is_auto ? " real time leaves room for" : ", as far as real time leaves room";
  return live ? text : text + ", where frames come at their own rate";
}

}  // namespace millrace::app
