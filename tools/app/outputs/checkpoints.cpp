#include "tools/app/outputs/checkpoints.h"

#include "tools/app/outputs/report.h"
#include "tools/app/parts.h"

namespace millrace::app {

Checkpoints::Checkpoints(RunParts& run) : run_(run), files_(run.request.config.checkpoint.dir) {
  const Config& config = run.request.config;
  if (config.checkpoint.dir.empty() || !config.weights.learn) return;
  // Also without checkpoint.every: the page or a reloaded config may request a snapshot.
  claim_ = io::claim_folder(config.checkpoint.dir);
  if (run.request.resumed.none_intact) files_.set_aside();
  writer = std::make_unique<engine::Checkpointer>(
      config.pipeline.stages * config.pipeline.tensor, config.checkpoint.every,
      [&run](int stage) { return run.learner.checkpoint(stage); },
      [this](const stages::StateDict& state, std::int64_t samples) {
        files_.write(run_.team ? run_.team->grid().put_together(state) : state,
                     about_weights(run_, samples, engine::Clock::now()));
      },
      run.learner.assembled.guard ? &run.learner.trainer.guard() : nullptr);
}

void Checkpoints::finish() {
  if (!writer) return;
  writer->finish();
  stages::StateDict state = run_.learner.checkpoint();
  files_.write(run_.team ? run_.team->whole(std::move(state)) : state, about_final());
}

void Checkpoints::write_weights(const std::string& path) const {
  stages::StateDict state = run_.learner.trainer.state();
  if (run_.team) state = run_.team->whole(std::move(state));
  stages::add_other_names(state, *run_.learner.assembled.network);
  io::write_whole(path, stages::to_safetensors(state, about_final()));
}

stages::Metadata Checkpoints::about_final() const {
  return about_weights(run_, run_.progress.frames.predicted(), run_.progress.ended);
}

}  // namespace millrace::app
