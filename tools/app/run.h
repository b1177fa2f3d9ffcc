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
}

namespace millrace::io {
class Source;
}

namespace millrace::app {

/// What the network made of one frame. The numbers are valid until the callback returns.
struct Prediction {
  std::int64_t index = 0;             ///< 0, 1, ... in order
  std::int64_t frame = 0;             ///< its number at the source
  float loss = 0;                     ///< before it was learned from; NaN: there was no target
  double latency_ms = 0;              ///< from capture to prediction
  std::span<const float> input;       ///< [C,H,W], 0..1
  std::span<const float> target;      ///< as the network gives it; empty: there was none
  std::span<const float> prediction;  ///< as the target
};

struct RunParts;

/// A stage that neither ends its step nor can be stopped. Its thread can't be joined: end the
/// process, and go on from the last checkpoint.
struct Wedged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct RunOptions {
  std::string trace;                   ///< file for what each worker did and when; "": none
  bool trace_operators = false;        ///< and for what a step program ran within that
  bool serve = false;                  ///< a page to watch on
  std::string serve_at;                ///< "ADDR:PORT"; "": loopback, port 8080
  std::string token;                   ///< asked of whoever watches; "": of nobody
  std::function<Config()> read_again;  ///< what reload() goes by; empty: nothing to reload
  /// Opens a source of one's own (io/source/source.h); empty: the config's source.uri. Throws
  /// io::SourceError.
  std::function<std::unique_ptr<io::Source>()> open_source;
  /// Of rank 0, where others follow() this run; null: it is alone. Outlives it.
  engine::Exchange* ranks = nullptr;
};

/// One run: source, queue, pipeline, monitor and whatever the config asks for beside them.
/// Thread-bound but for stop() and set_rate(). Constructors and learn() throw ConfigError for a
/// config that can't be used, io::SourceError for a source that can't be opened, std::runtime_error
/// else.
class Run {
 public:
  /// Checks the config, opens the source and starts to read it.
  explicit Run(const Config& config, RunOptions options = {});
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// `see`: called for each prediction by the last stage's worker, in the hot path.
  void on_prediction(std::function<void(const Prediction&)> see);
  /// `tell`: called by learn()'s thread with a line about what happens: a roll-back, an outage, ...
  void on_event(std::function<void(const std::string& line)> tell);
  /// `look`: called by learn()'s thread some 20 times a second. It may call any method but learn().
  void on_tick(std::function<void()> look);

  /// Learns until the source ends, `frames` were trained (0: no limit) or stop() is called. Once.
  /// Rethrows what a worker threw; save() still saves what there is. Throws Wedged if after stop()
  /// no frame is done for 20 s.
  void learn(std::int64_t frames = 0);
  /// No further frame is read; what is in flight is finished. Overrides a pause. Any thread.
  void stop();
  /// Multiplies optimizer.lr, from the next update on. Any thread.
  void set_rate(double times);
  /// Reads the config again and applies what may change meanwhile; says what in a line.
  std::string reload();
  /// Writes every output that the config names. One that can't be written costs no other; returns
  /// what failed, a line each.
  std::vector<std::string> save();
  /// The weights alone, as safetensors.
  void save_weights(const std::string& path) const;

  std::array<int, 3> shape() const;  ///< of a prediction's input: channels, height, width
  std::int64_t trained() const;
  bool paused() const;          ///< a viewer asked for it
  std::string status() const;   ///< one line on how it is doing; rates are since the call before
  std::string report() const;   ///< JSON; after learn()
  std::string summary() const;  ///< the report in a few lines, ending with the verdict
  std::string page() const;     ///< its URL; "": not served
  std::string video() const;    ///< where it goes; "": nowhere
  /// What people should know before it learns, a line each.
  std::vector<std::string> remarks() const;
  const std::string& source_error() const;  ///< why the stream broke off; "": it did not

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
