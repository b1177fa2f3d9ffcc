// A run as a library: a network learns from a video stream. Needs no LibTorch to be included.
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
}

namespace millrace::io {
class Source;
}

namespace millrace::app {

/// What the network made of one frame. The numbers are valid until the callback returns.
struct Prediction {
  std::int64_t index = 0;             ///< 0, 1, ... in order
  std::int64_t frame = 0;             ///< the source's number of it
  float loss = 0;                     ///< before the update; NaN: no target
  double latency_ms = 0;              ///< from capture to prediction
  std::span<const float> input;       ///< [C,H,W], 0..1
  std::span<const float> target;      ///< in the network's output shape; empty: none
  std::span<const float> prediction;  ///< in the same shape
};

/// Frames that the caller puts into the run's queue (RunParts::intake), as values.
struct GivenStream {
  std::array<std::int64_t, 3> shape{};  ///< of a frame: channels, height, width
  bool targets = false;                 ///< frames come with targets of any shape
  bool live = false;                    ///< frames come at their own rate: the newest one wins
  /// Changes the trainer's options before it is built; empty: nothing is changed.
  std::function<void(engine::TrainerOptions&)> adjust;
  std::function<void()> ready;  ///< called once, by learn()'s thread, when frames are wanted
};

struct RunParts;

/// A stage's step neither ends nor can be stopped. Its thread can't be joined: end the process and
/// continue from the last checkpoint.
struct Wedged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct RunOptions {
  std::string trace;                   ///< file for a trace of the workers' actions; "": none
  bool trace_operators = false;        ///< also trace operators within steps
  bool serve = false;                  ///< serve a page to watch the run
  std::string serve_at;                ///< "ADDR:PORT"; "": loopback, port 8080
  std::string token;                   ///< that viewers must give; "": none
  std::function<Config()> read_again;  ///< for reload(); empty: no reload
  /// Opens the caller's own source (io/source/source.h); empty: the config's source.uri is opened.
  /// Throws io::SourceError.
  std::function<std::unique_ptr<io::Source>()> open_source;
  /// Frames come from the caller, not from a source; null: from a source.
  std::shared_ptr<const GivenStream> given;
  /// Rank 0's link to the ranks that follow() this run; null: there are none. Outlives the run.
  engine::Exchange* ranks = nullptr;
};

/// One run: source, queue, pipeline, monitor and everything else that the config asks for.
/// Thread-bound, except stop() and set_rate(). The constructor and learn() throw ConfigError for a
/// config that can't be used, io::SourceError for a source that can't be opened, and
/// std::runtime_error otherwise.
class Run {
 public:
  /// Checks the config and opens the source.
  explicit Run(const Config& config, RunOptions options = {});
  ~Run();

  /// `see` is called for each prediction by the last stage's worker, in the hot path.
  void on_prediction(std::function<void(const Prediction&)> see);
  /// `tell` is called by learn()'s thread with a line on each event: a roll-back, an outage, ...
  void on_event(std::function<void(const std::string& line)> tell);
  /// `look` is called by learn()'s thread about 20 times a second. It may call any method but
  /// learn().
  void on_tick(std::function<void()> look);

  /// Learns until the source ends, `frames` frames are trained (0: no limit) or stop() is called.
  /// Call it once. Rethrows what a worker threw; save() then still saves what was learned. Throws
  /// Wedged if no frame is finished for 20 s after stop().
  void learn(std::int64_t frames = 0);
  /// Stops reading; frames in flight are finished. Ends a pause. Any thread.
  void stop();
  /// Multiplies optimizer.lr, from the next update on. Any thread.
  void set_rate(double times);
  /// Reads the config again and applies what may change during a run. Returns a line on that.
  std::string reload();
  /// Writes every output that the config names, even if others fail. Returns a line on each
  /// failure.
  std::vector<std::string> save();
  /// Writes the weights alone, as safetensors.
  void save_weights(const std::string& path) const;

  std::array<int, 3> shape() const;  ///< of a prediction's input: channels, height, width
  std::int64_t trained() const;
  bool paused() const;          ///< by a viewer
  std::string status() const;   ///< one line; rates are since the call before
  std::string report() const;   ///< JSON; while it learns, without what only idle workers show
  std::string summary() const;  ///< the report in a few lines, ending with the verdict
  std::string page() const;     ///< its URL; "": not served
  std::string video() const;    ///< where it goes; "": nowhere
  /// What users should know before it learns, a line each.
  std::vector<std::string> remarks() const;
  const std::string& source_error() const;  ///< why the stream broke off; "": it did not
  RunParts& parts() { return *parts_; }     ///< for those that include tools/app/parts.h

 private:
  std::unique_ptr<RunParts> parts_;
};

}  // namespace millrace::app

namespace millrace {
using app::Config;
using app::ConfigError;
using app::Prediction;
using app::Run;
using app::RunOptions;
}  // namespace millrace
