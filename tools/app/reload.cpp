#include "tools/app/assembly.h"
#include "tools/app/console.h"
#include "tools/app/outputs/outputs.h"
#include "tools/app/ranks/rank_grid.h"

namespace millrace::app {

std::string Console::reload() {
  if (!request_.options.read_again) return "there is no file to read";
  Config fresh;
  try {
    fresh = request_.options.read_again();
    assemble(fresh, configured_shape(fresh));  // finds what a restart would
    require_outputs(fresh, request_.options.trace);
  } catch (const std::exception& error) {
    return std::string(error.what()) + "; nothing has changed";
  }
  std::string changed, left;
  for (const Difference& difference : differences(config, fresh)) {
    std::string& list = apply(difference.key, fresh) ? changed : left;
    list += (list.empty() ? "" : ", ") + difference.key;
    if (!difference.after.empty()) list += " " + difference.before + " -> " + difference.after;
  }
  if (changed.empty()) changed = "nothing has changed";
  return changed + (left.empty() ? "" : "; needs a restart: " + left);
}

bool Console::apply(const std::string& key, const Config& fresh) {
  const auto take = [](auto& here, const auto& there) {
    here = there;
    return true;
  };
  const double first_lr = request_.config.optimizer.lr;
  if (key == "optimizer.lr" && first_lr > 0 && weights_are_apart(fresh)) {
    learner_.rate = fresh.optimizer.lr / first_lr;
    return take(config.optimizer.lr, fresh.optimizer.lr);
  }
  if (key == "monitor.fps") {
    learner_.trainer.monitor().set_fps(fresh.monitor.fps > 0 ? fresh.monitor.fps
                                                             : intake_.info.fps);
    return take(config.monitor.fps, fresh.monitor.fps);
  }
  if (key == "checkpoint.every" && records_.checkpointer) {
    records_.checkpointer->set_every(fresh.checkpoint.every);
    return take(config.checkpoint.every, fresh.checkpoint.every);
  }
  if (key == "output.report") return take(config.output.report, fresh.output.report);
  if (key == "output.weights") return take(config.output.weights, fresh.output.weights);
  if (key == "output.loss_plot") return take(config.output.loss_plot, fresh.output.loss_plot);
  if (key == "output.prediction") return take(config.output.prediction, fresh.output.prediction);
  return false;
}

}  // namespace millrace::app
