// What the ranks of a run write to each other beside the pipeline.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/monitor/real_time.h"
#include "engine/pipeline/bytes.h"
#include "engine/pipeline/exchange.h"
#include "engine/trainer/checkpointer.h"
#include "engine/trainer/trainer.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// The first character of each letter.
enum class Word : char {
  // To rank 0.
  hello = 'H',   ///< build, config and GPUs
  ready = 'K',   ///< host and process
  failed = 'X',  ///< exit code, and why
  part = 'C',    ///< of a checkpoint
  stop = 'Q',    ///< a signal asked for it
  source = 'F',  ///< how a source beside rank 0's went: SourceReport
  share = 'S',   ///< of the weights, as a run has left them: where modules are shared
  // From rank 0.
  join = 'J',     ///< the grid: all have the same config; everybody's GPUs
  plan = 'P',     ///< what to build
  refused = 'R',  ///< exit code: there will be no run
  go = 'G',
  settings = 'T',  ///< that may change while it learns
};

/// What may change while it learns.
struct RankSettings {
  double rate = 1;
  std::int64_t every = 0, asked = 0;  ///< of checkpoints
  bool operator==(const RankSettings&) const = default;
};

/// What rank 0 has found out, that all build the same.
struct RankPlan {
  stages::ImageShape sample;
  std::vector<int> cut;
  std::vector<double> module_ms;
  double fps = 0;
  stages::StateDict weights;  ///< with the optimizer's state
};

/// Of one of several pipelines, when it has learned.
struct SourceReport {
  std::string uri;
  engine::FrameCounts frames;
  std::vector<double> stage_ms, handoff_ms;
  std::string error;  ///< why the stream broke off; "": it did not
};

/// A letter that begins with `word`.
inline engine::ByteWriter letter(Word word) {
  return engine::ByteWriter().put(word);
}

/// Under the exchange's mutex, at once.
void post(engine::Exchange& exchange, int to, const engine::ByteWriter& letter);
/// The next letter, if one is there.
std::optional<engine::Exchange::Letter> next_letter(engine::Exchange& exchange);
/// Waits for one. Throws std::runtime_error if none comes for so long.
engine::Exchange::Letter await_letter(engine::Exchange& exchange,
                                      std::chrono::seconds patience = std::chrono::hours(24));
/// Waits until what was posted needs this process no longer, or is for ranks that are gone.
void await_posted(engine::Exchange& exchange,
                  std::chrono::seconds patience = std::chrono::seconds(2));

engine::ByteWriter hello(const Config& config);
/// Why the rank that sent this can't run with one that says hello(config); "": it can, and its GPUs
/// are to be read next.
std::string difference(engine::ByteReader& from, const Config& config);

engine::GpusOfRanks read_gpus(engine::ByteReader& letter);  ///< of Word::join

// RankPlan, SourceReport and engine::Checkpointer::Part as letters.
template <class Content>
engine::ByteWriter write(Word word, const Content& content);
template <class Content>
Content read(engine::ByteReader& letter);

}  // namespace millrace::app
