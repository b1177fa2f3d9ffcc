#include "tools/app/ranks/rank_grid.h"

#include <numeric>
#include <string>

#include "engine/format.h"
#include "engine/pipeline/pinning.h"

namespace millrace::app {
namespace {

constexpr int kAgree = engine::Exchange::kTags / 4;  ///< above the tags of sums

std::vector<int> numbers(int first, int count, int apart) {
  std::vector<int> all;
  for (int i = 0; i < count; ++i) all.push_back(first + i * apart);
  return all;
}

/// Throws ConfigError for keys that ranks can neither share nor copy; `why`: both reasons.
void require_plain(const Config& config, const engine::TrainerOptions& options,
                   const std::string& why) {
  if (!config.pipeline.replicas.empty())
    throw config.error("pipeline.replicas", why + ": can't be combined with replicas");
  if (config.monitor.policy != "drop")
    throw config.error("monitor.policy", why + ": only \"drop\" is supported");
  for (const engine::Device& device : options.devices)
    if (device.cuda) throw config.error("pipeline.devices", why + ": only CPU cores are supported");
}

void require_copies(const Config& config, const engine::TrainerOptions& options, int ranks) {
  const int copies = copies_of(config);
  if (copies == 1) return;
  const std::string each = std::to_string(copies) + " pipelines train one network (source.uris)";
  if (ranks % copies != 0)
    throw config.error(
        "source.uris",
        each + engine::format(
                   ", so the number of ranks must be a multiple of %d ranks (mpirun -n), not %d",
                   copies, ranks));
  if (config.task.kind != "autoencode" && config.task.kind != "next-frame") {
    throw config.error("task.kind",
                       each + ", each from its frames alone: \"autoencode\" or \"next-frame\"");
  }
  const std::string& correction = config.correction.kind;
  if (correction == "local" || correction == "deep-supervision") {
    throw config.error("correction.kind",
                       each + ": \"" + correction + "\" heads would each learn from one source");
  }
  require_plain(config, options, each);
}

}  // namespace

RankGrid::RankGrid(engine::Exchange& all, const Config& config, engine::GpusOfRanks gpus)
    : all_(all),
      tensor_(config.pipeline.tensor),
      copies_(copies_of(config)),
      part_(all.rank() % tensor_),
      gpus_(std::move(gpus)) {
  if (tensor_ == 1 && copies_ == 1) return;
  const std::lock_guard lock(all.mutex());
  const int in_copy = all.ranks() / copies_;
  pipeline_ = all.part(copy() * tensor_ + part_);
  pipeline_->numbers = numbers(copy() * in_copy + part_, in_copy / tensor_, tensor_);
  if (tensor_ > 1) {
    group_ = all.part(all.rank() / tensor_);
    group_->numbers = numbers(all.rank() - part_, tensor_, 1);
  }
  if (copies_ > 1) {
    same_ = all.part(all.rank() % in_copy);
    same_->numbers = numbers(all.rank() % in_copy, copies_, in_copy);
  }
}

RankGrid::~RankGrid() {
  if (!pipeline_) return;
  pipeline_->on_workers_ended = nullptr;  // the pipeline is destroyed last, and uses the sums
  pipeline_->on_end_of_stream = nullptr;
  pipeline_->copies = {};
  pipeline_->add_up_parts = nullptr;
}

void RankGrid::beat() {
  for (const auto& group : {sums_, agreed_})
    if (group) group->beat();
}

void RankGrid::share(const Config& config, engine::TrainerOptions& options) {
  options.exchange = &pipeline();
  options.gpus = gpus_;
  if (!pipeline_) return;
  pipeline_->on_workers_ended = [this](bool failed) {
    for (const auto& group : {sums_, agreed_})
      if (group) group->leave(failed);
  };
  const bool named = config.pipeline.devices.front().find(':') != std::string::npos;
  if (tensor_ > 1)  // measuring would need sums from the other ranks
    std::replace(options.threads.begin(), options.threads.end(), 0, 1);
  std::vector<int> threads(options.devices.size(), 1);
  for (std::size_t stage = 0; stage < options.threads.size(); ++stage)
    threads[stage] = std::max(1, options.threads[stage]);
  const int cores = std::accumulate(threads.begin(), threads.end(), 0);
  for (std::size_t stage = 0; stage < options.devices.size(); ++stage) {
    engine::Device& core = options.devices[stage];
    core.index = (core.index * (named ? 1 : tensor_) + part_ * threads[stage] +
                  (named ? 0 : copy() * cores * tensor_)) %
                 engine::usable_cores();
  }
  if (same_) {
    agreed_ = std::make_shared<engine::SumGroup>(*same_);
    pipeline_->copies = {copies_, [group = agreed_](std::span<float> numbers, int stage) {
                           group->add_up(numbers, stage);
                         }};
  }
  if (tensor_ == 1) return;
  split_ = std::make_unique<stages::TensorSplit>(options.network, options.cut, tensor_);
  sums_ = std::make_shared<engine::SumGroup>(*group_);
  whole_ = std::move(options.weights);
  if (whole_.empty()) whole_ = stages::initial_state(*options.network, options.seed);
  pipeline_->add_up_parts = [group = sums_](std::span<float> numbers, int stage) {
    group->add_up(numbers, kAgree + stage);
  };
  options.weights = split_->part_of(whole_, part_);
  options.network = split_->part(sums_);
}

void require_grid(const Config& config, const engine::TrainerOptions& options, int ranks) {
  require_copies(config, options, ranks);
  ranks /= copies_of(config);
  const int tensor = config.pipeline.tensor;
  if (tensor == 1) return;
  const std::string shared = std::to_string(tensor) + " ranks share each module (pipeline.tensor)";
  if (ranks % tensor != 0)
    throw config.error("pipeline.tensor",
                       shared + engine::format(", so the number of ranks must be a multiple of %d "
                                               "ranks (mpirun -n) to a pipeline, not %d",
                                               tensor, ranks));
  require_plain(config, options, shared);
  if (options.correction.kind == "gap-aware") {
    throw config.error(
        "correction.kind",
        shared + ": \"gap-aware\" goes by the mean step of all of a stage's weights");
  }
  if (options.optimizer.orthogonal > 0)
    throw config.error("optimizer.orthogonal",
                       shared + ": a gradient is projected on its whole tensor's mean");
  if (config.pipeline.stages > 1 && config.pipeline.cut.empty())
    throw config.error("pipeline.cut", shared + ": set the cut, at modules that are not split");
  if (stages::TensorSplit(options.network, options.cut, tensor).pairs().empty()) {
    throw config.error("pipeline.tensor",
                       "no stage has two convolutions or linear layers, with only layers between "
                       "that treat channels alone, whose channels between them are a multiple of " +
                           std::to_string(tensor));
  }
}

}  // namespace millrace::app
