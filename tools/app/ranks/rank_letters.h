// Messages between a run's ranks, besides the pipeline's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "engine/monitor/real_time.h"
#include "engine/pipeline/bytes.h"
#include "engine/pipeline/exchange.h"
#include "engine/trainer/checkpointer.h"
#include "engine/trainer/trainer.h"
#include "stages/safetensors.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// A letter's kind, sent as its first character.
enum class Word : char {
  // To rank 0.
  hello = 'H',   ///< build, config and GPUs
  ready = 'K',   ///< host and process
  failed = 'X',  ///< exit code and error message
  part = 'C',    ///< part of a checkpoint
  stop = 'Q',    ///< this rank received a stop signal
  source = 'F',  ///< SourceReport of another copy's source
  share = 'S',   ///< the final weights of shared modules
  // From rank 0.
  join = 'J',     ///< all have the same config; GPUs of all ranks
  plan = 'P',     ///< what to build
  refused = 'R',  ///< exit code; there is no run
  go = 'G',
  settings = 'T',  ///< RankSettings
};

/// May change during a run.
struct RankSettings {
  double rate = 1;
  std::int64_t every = 0, asked = 0;  ///< of checkpoints
  bool operator==(const RankSettings&) const = default;
};

/// Rank 0's decisions, so that all ranks build the same.
struct RankPlan {
  stages::ImageShape sample;
  std::vector<int> cut;
  std::vector<double> module_ms;
  double fps = 0;
  stages::StateDict weights;  ///< with optimizer state
};

struct SourceReport {
  std::string uri;
  engine::FrameCounts frames;
  std::vector<double> stage_ms, handoff_ms;
  std::string error;  ///< why the stream broke off; "": it didn't
};

inline engine::ByteWriter letter(Word word) {
  return engine::ByteWriter().put(word);
}

void post(engine::Exchange& exchange, int to, const engine::ByteWriter& letter);
std::optional<engine::Exchange::Letter> next_letter(engine::Exchange& exchange);
/// Waits for a letter; calls `look` meanwhile. Rethrows its exceptions; throws std::runtime_error
/// after `patience`.
engine::Exchange::Letter await_letter(
    engine::Exchange& exchange, const std::function<void()>& look = [] {},
    std::chrono::seconds patience = std::chrono::hours(24));
/// Waits until posted letters no longer need this process, or their ranks are gone.
void await_posted(engine::Exchange& exchange,
                  std::chrono::seconds patience = std::chrono::seconds(2));

engine::ByteWriter hello(const Config& config);
/// Why the sender of a hello can't run with this `config`, or "". Leaves its GPUs unread.
std::string difference(engine::ByteReader& from, const Config& config);

engine::GpusOfRanks read_gpus(engine::ByteReader letter);  ///< of Word::join

// The fields of a letter, in the order of writing and reading.
inline auto fields(RankPlan& of) {
  return std::tie(of.sample, of.cut, of.module_ms, of.fps, of.weights);
}
inline auto fields(SourceReport& of) {
  return std::tie(of.uri, of.frames, of.stage_ms, of.handoff_ms, of.error);
}
inline auto fields(engine::Checkpointer::Part& of) {
  return std::tie(of.stage, of.sample, of.due.first, of.due.second, of.state);
}

/// A letter of `word`; `content` has fields().
template <class Content>
engine::ByteWriter write(Word word, Content content) {
  engine::ByteWriter bytes = letter(word);
  const auto put = [&](const auto& field) {
    if constexpr (std::is_same_v<decltype(field), const stages::StateDict&>)
      bytes.put(stages::to_safetensors(field));
    else
      bytes.put(field);
  };
  std::apply([&](const auto&... field) { (put(field), ...); }, fields(content));
  return bytes;
}

template <class Content>
Content read_as(engine::ByteReader letter) {
  Content content;
  const auto get = [&]<class Field>(Field& field) {
    if constexpr (std::is_same_v<Field, stages::StateDict>)
      field = stages::from_safetensors(std::string(letter.text()));
    else if constexpr (std::is_same_v<Field, std::string>)
      field = letter.text();
    else if constexpr (requires { field.push_back({}); })
      field = letter.list<typename Field::value_type>();
    else
      field = letter.get<Field>();
  };
  std::apply([&](auto&... field) { (get(field), ...); }, fields(content));
  return content;
}

}  // namespace millrace::app
