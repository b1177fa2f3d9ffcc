#include "tools/run/rank_grid.h"

#include <string>

#include "engine/pipeline/pinning.h"

namespace millrace::tools {

RankGrid::RankGrid(engine::Exchange& all, int tensor)
    : all_(all), tensor_(tensor), part_(all.rank() % tensor) {
  if (tensor == 1) return;
  const std::lock_guard lock(all.mutex());
  pipeline_ = all.part(part_);
  group_ = all.part(tensor + all.rank() / tensor);
}

RankGrid::~RankGrid() {
  if (pipeline_) pipeline_->on_workers_ended = nullptr;  // it goes last, and has the sums
}

void RankGrid::share(const Config& config, engine::TrainerOptions& options) {
  options.exchange = &pipeline();
  if (tensor_ == 1) return;
  split_ = std::make_unique<stages::TensorSplit>(options.network, options.cut, tensor_);
  sums_ = std::make_shared<engine::TensorGroup>(*group_);
  pipeline_->on_workers_ended = [sums = sums_](bool failed) { sums->leave(failed); };
  whole_ = std::move(options.weights);
  if (whole_.empty()) whole_ = stages::initial_state(*options.network, options.seed);
  options.weights = split_->part_of(whole_, part_);
  options.network = split_->part(sums_);
  options.capture = engine::Capture::eager;
  const bool named = config.pipeline.devices.front().find(':') != std::string::npos;
  for (engine::Device& core : options.devices)
    core.index = (core.index * (named ? 1 : tensor_) + part_) % engine::usable_cores();
}

void require_tensor(const Config& config, const engine::TrainerOptions& options, int ranks) {
  const int tensor = config.pipeline.tensor;
  if (tensor == 1) return;
  const auto fail = [&](const std::string& key, const std::string& what) {
    throw config.error(key, what);
  };
  const std::string shared = std::to_string(tensor) + " ranks share each module (pipeline.tensor)";
  if (ranks % tensor != 0) {
    fail("pipeline.tensor", shared + ", so that there must be a multiple of " +
                                std::to_string(tensor) + " ranks (mpirun -n), not " +
                                std::to_string(ranks));
  }
  if (config.pipeline.capture == "graph")
    fail("pipeline.capture", "steps that ranks share run eagerly: \"auto\" or \"eager\"");
  if (!config.pipeline.replicas.empty())
    fail("pipeline.replicas", shared + ": stages have no replicas then");
  if (config.monitor.policy != "drop")
    fail("monitor.policy", shared + ": what is too much is dropped, \"drop\"");
  if (config.pipeline.stages > 1 && config.pipeline.cut.empty())
    fail("pipeline.cut", shared + ": name the cut, at modules that none is split across");
  if (stages::TensorSplit(options.network, options.cut, tensor).pairs().empty()) {
    fail("pipeline.tensor",
         "no stage has two convolutions or linear layers, with only layers between that treat "
         "channels alone, whose channels between them are a multiple of " +
             std::to_string(tensor));
  }
}

}  // namespace millrace::tools
