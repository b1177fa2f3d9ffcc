#include "tools/app/reload.h"

#include <exception>  // a config that is broken

#include "tools/app/assembly.h"
#include "tools/app/ranks/rank_grid.h"

namespace millrace::app {

Reload::Reload(const Config& config, std::function<Config()> read, Adjustable run)
    : read_(std::move(read)), first_lr_(config.optimizer.lr), run_(run), now_(config) {}

std::string Reload::read_again() {
  Config fresh;
  try {
    fresh = read_();
    assemble(fresh, configured_shape(fresh));  // what a restart would find wrong
  } catch (const std::exception& error) {
    return std::string(error.what()) + "; nothing has changed";
  }
  std::string changed, left;
  for (const Difference& difference : differences(now_, fresh)) {
    std::string& list = apply(difference.key, fresh) ? changed : left;
    list += (list.empty() ? "" : ", ") + difference.key;
    if (!difference.after.empty()) list += " " + difference.before + " -> " + difference.after;
  }
  if (changed.empty()) changed = "nothing has changed";
  return changed + (left.empty() ? "" : "; needs a restart: " + left);
}

bool Reload::apply(const std::string& key, const Config& fresh) {
  const auto take = [&](auto& here, const auto& there) {
    here = there;
    return true;
  };
  if (key == "optimizer.lr" && first_lr_ > 0 && weights_are_apart(fresh)) {
    run_.rate = fresh.optimizer.lr / first_lr_;
    return take(now_.optimizer.lr, fresh.optimizer.lr);
  }
  if (key == "monitor.fps") {
    run_.monitor.set_fps(fresh.monitor.fps > 0 ? fresh.monitor.fps : run_.source_fps);
    return take(now_.monitor.fps, fresh.monitor.fps);
  }
  if (key == "checkpoint.every" && run_.checkpointer) {
    run_.checkpointer->set_every(fresh.checkpoint.every);
    return take(now_.checkpoint.every, fresh.checkpoint.every);
  }
  if (key == "output.report") return take(now_.output.report, fresh.output.report);
  if (key == "output.weights") return take(now_.output.weights, fresh.output.weights);
  if (key == "output.loss_plot") return take(now_.output.loss_plot, fresh.output.loss_plot);
  if (key == "output.prediction") return take(now_.output.prediction, fresh.output.prediction);
  return false;
}

}  // namespace millrace::app
