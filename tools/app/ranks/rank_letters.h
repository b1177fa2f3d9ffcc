// What the ranks of a run write to each other beside the pipeline.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/monitor/real_time.h"
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

/// For letters between processes of the same build.
class LetterWriter {
 public:
  explicit LetterWriter(Word word) : text_(1, char(word)) {}
  template <class T>
  LetterWriter& put(const T& number) {
    static_assert(std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&number), sizeof number);
    return *this;
  }
  template <class T>
  LetterWriter& put(const std::vector<T>& numbers) {
    put(std::int64_t(numbers.size()));
    for (const T& number : numbers) put(number);
    return *this;
  }
  LetterWriter& put(const std::string& text) {
    put(std::int64_t(text.size()));
    text_ += text;
    return *this;
  }
  std::string text() const { return text_; }

 private:
  std::string text_;
};

class LetterReader {
 public:
  explicit LetterReader(std::string_view text) : text_(text) {}
  Word word() { return Word(get<char>()); }
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T number;
    std::memcpy(&number, bytes(sizeof number).data(), sizeof number);
    return number;
  }
  template <class T>
  std::vector<T> list() {
    std::vector<T> numbers(std::size_t(get<std::int64_t>()));
    for (T& number : numbers) number = get<T>();
    return numbers;
  }
  std::string_view text() { return bytes(std::size_t(get<std::int64_t>())); }

 private:
  /// Throws std::runtime_error for a letter that is too short.
  std::string_view bytes(std::size_t size);
  std::string_view text_;
};

/// Under the exchange's mutex, at once.
void post(engine::Exchange& exchange, int to, const LetterWriter& letter);
/// The next letter, if one is there.
std::optional<engine::Exchange::Letter> next_letter(engine::Exchange& exchange);
/// Waits for one. Throws std::runtime_error if none comes for so long.
engine::Exchange::Letter await_letter(engine::Exchange& exchange,
                                      std::chrono::seconds patience = std::chrono::hours(24));
/// Waits until what was posted needs this process no longer, or is for ranks that are gone.
void await_posted(engine::Exchange& exchange,
                  std::chrono::seconds patience = std::chrono::seconds(2));

LetterWriter hello(const Config& config);
/// Why the rank that sent this can't run with one that says hello(config); "": it can, and its GPUs
/// are to be read next.
std::string difference(LetterReader& from, const Config& config);

engine::GpusOfRanks read_gpus(LetterReader& letter);  ///< of Word::join

LetterWriter write(const RankPlan& plan);
RankPlan read_plan(LetterReader& letter);
LetterWriter write(const SourceReport& report);
SourceReport read_source(LetterReader& letter);
LetterWriter write(const engine::Checkpointer::Part& part);
engine::Checkpointer::Part read_part(LetterReader& letter);

}  // namespace millrace::app
