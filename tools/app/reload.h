// The config read again while the run goes on.
#pragma once

#include <atomic>  // rate
#include <functional>
#include <string>  // lines

#include "engine/trainer/checkpointer.h"
#include "engine/monitor/monitor.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// The parts of a run that may change meanwhile; all outlive a Reload.
struct Adjustable {
  std::atomic<double>& rate;  ///< times the first optimizer.lr
  engine::Monitor& monitor;
  double source_fps;                   ///< F where monitor.fps is 0
  engine::Checkpointer* checkpointer;  ///< null: no checkpoint.dir
};

/// Applies optimizer.lr, monitor.fps, checkpoint.every and what is written at the end (output's
/// files, but not its video). Other keys need a restart: threads, buffers and files are made of
/// them. One thread.
class Reload {
 public:
  /// `config`: as it was at the start; outlives this. `read`: as it is now, or throws.
  Reload(const Config& config, std::function<Config()> read, Adjustable run);

  /// Reads the file and --set again. Says in a line what has changed, and which keys differ but
  /// need a restart; or what is wrong with it, and then nothing has changed.
  std::string read_again();
  /// What the run goes by now.
  const Config& config() const { return now_; }

 private:
  bool apply(const std::string& key, const Config& fresh);

  const std::function<Config()> read_;
  const double first_lr_;
  Adjustable run_;
  Config now_;
};

}  // namespace millrace::app
