#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/app/config/config.h"

namespace millrace::engine {
class Exchange;
struct TrainerOptions;
}  // namespace millrace::engine

namespace millrace::io {
class Source;
}

namespace millrace::app {

/// The network's result for one frame. The spans are valid until the callback returns.
struct Prediction {
  std::int64_t index = 0;             ///< 0, 1, ... in order
  std::int64_t frame = 0;             ///< the source's frame number
  float loss = 0;                     ///< before the update; NaN: no target
  double latency_ms = 0;              ///< from capture to prediction
  std::span<const float> input;       ///< [C,H,W], 0..1
  std::span<const float> target;      ///< in the network's output shape; empty: none
  std::span<const float> prediction;  ///< in the same shape
};

/// Frames that the caller puts into the run's queue (RunParts::intake), as values.
struct GivenStream {
  std::array<std::int64_t, 3> shape{};  ///< of a frame: channels, height, width
  bool targets = false;                 ///< frames come with targets, of any shape
  bool live = false;                    ///< frames arrive at their own rate: the newest wins
  /// Adjusts the trainer's options before it is built; may be empty.
  std::function<void(engine::TrainerOptions&)> adjust;
  std::function<void()> ready;  ///< called once, by learn()'s thread, when frames are wanted
};

struct RunParts;

/// A stage's step neither ends nor can be stopped. Its thread can't be joined: end the process and
/// continue from the last checkpoint.
struct Wedged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Called often while ranks wait for `whom` before a run; true gives up.
using Waits = std::function<bool(const std::string& whom)>;

struct RunOptions {
  std::string trace;                   ///< file for a trace of the workers' actions; "": none
  bool trace_operators = false;        ///< also trace operators within steps
  bool serve = false;                  ///< serve a page about the run
  std::string serve_at;                ///< "ADDR:PORT"; "": loopback, port 8080
  std::string token;                   ///< that viewers must give; "": none
  std::function<Config()> read_again;  ///< for reload(); empty: no reload
  /// Opens the caller's own source; empty: source.uri is opened. Throws io::SourceError.
  std::function<std::unique_ptr<io::Source>()> open_source;
  /// Not null: frames come from the caller, not from a source.
  std::shared_ptr<const GivenStream> given;
  /// Rank 0's link to the ranks that follow() this run, or null; outlives the run.
  engine::Exchange* ranks = nullptr;
  Waits waits;  ///< for other ranks
};

/// The exit code that tells of `error`: 2 a ConfigError, 3 an io::SourceError, 1 any other.
int exit_code_of(const std::exception& error);

/// The user stopped the run before it began.
struct Stopped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One run: source, queue, pipeline, monitor and everything else in the config. Thread-bound,
/// except stop() and set_rate(). The constructor and learn() throw ConfigError for unusable
/// configs, io::SourceError for sources that can't be opened, and otherwise std::runtime_error.
/// Including this header needs no LibTorch.
class Run {
 public:
  explicit Run(const Config& config, RunOptions options = {});
  ~Run();

  /// `see` is called for each prediction by the last stage's worker, in the hot path.
  void on_prediction(std::function<void(const Prediction&)> see);
  /// `tell` is called by learn()'s thread, and save()'s, with a line per event: a roll-back, ...
  void on_event(std::function<void(const std::string& line)> tell);
  /// `look` is called by learn()'s thread about 20 times a second; it may not call learn().
  void on_tick(std::function<void()> look);

  /// Learns until the source ends, `frames` frames, in whole minibatches, are trained (0: no limit)
  /// or stop() is called. Call it once. Rethrows a worker's exception; save() then still saves the
  /// weights learned so far. Throws Wedged if no frame is finished for 20 s after stop().
  void learn(std::int64_t frames = 0);
  /// Stops reading and ends a pause; frames in flight are finished. Any thread.
  void stop();
  /// Scales optimizer.lr, from the next update on. Any thread.
  void set_rate(double times);
  /// Reads the config again and applies keys that may change during a run. Returns a line about it.
  std::string reload();
  /// Writes every output in the config, even if others fail. Returns a line per failure.
  std::vector<std::string> save();
  void save_weights(const std::string& path) const;

  std::array<int, 3> shape() const;  ///< of a prediction's input: channels, height, width
  std::int64_t predicted() const;  ///< frames, trained on or not
  bool paused() const;  ///< by a viewer
  /// One line; rates are since the last call. `verbose`: with times, latencies and loss.
  std::string status(bool verbose = false) const;
  std::string report() const;    ///< JSON; during learning without what only idle workers show
  std::string summary() const;   ///< the report in a few lines, ending with the verdict
  std::string page() const;      ///< its URL; "": not served
  std::string video() const;     ///< its destination; "": none
  bool uses_stdout() const;      ///< for an output
  std::string watching() const;  ///< the first line: source, size, rate, what is reported
  /// Remarks for users before learning, one line each. `verbose`: with those on how it learns.
  std::vector<std::string> remarks(bool verbose = true) const;
  const std::string& source_error() const;  ///< why the stream broke off; "": it didn't
  RunParts& parts() { return *parts_; }     ///< needs tools/app/parts.h

 private:
  std::unique_ptr<RunParts> parts_;
};

// The ranks that a launcher such as mpirun started for one run. Ranks other than 0 run their share
// of the workers, without report or page.

/// Null if this process was started alone; then MPI isn't even loaded. Call it once per process.
/// Another thread calls `waits` until all ranks have started; true ends the process with 0. Ranks
/// must not end before all have destroyed their Exchange. Throws ConfigError if several processes
/// were started and this build has no MPI.
std::unique_ptr<engine::Exchange> launched_ranks(const Waits& waits = {});
/// Learns as part of rank 0's run and returns the exit code. `read` returns the config, which must
/// equal rank 0's, or throws ConfigError. `asked_to_stop` is called about 20 times a second; on
/// true, rank 0 drains all ranks. Throws std::runtime_error if the run fails or rank 0 does not
/// answer. Rank 0 reports errors from before the run.
int follow(engine::Exchange& exchange, const std::function<Config()>& read,
           const std::function<bool()>& asked_to_stop);
/// On rank 0: makes ranks that wait for the run exit with `code`.
void refuse_ranks(engine::Exchange& exchange, int code);

}  // namespace millrace::app

namespace millrace {
using app::Config;
using app::ConfigError;
using app::Prediction, app::Run, app::RunOptions;
}  // namespace millrace
