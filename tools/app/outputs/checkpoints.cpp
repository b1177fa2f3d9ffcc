#include "tools/app/outputs/report.h"
#include "tools/app/parts.h"

namespace millrace::app {

Checkpoints::Checkpoints(RunParts& run) : run_(run), files_(run.request.config.checkpoint.dir) {
  const Config& config = run.request.config;
  const Learner& learner = run.learner;
  if (config.checkpoint.dir.empty() || !config.weights.learn) return;
  // Also without checkpoint.every: the page or a reloaded config may request a snapshot.
  claim_ = io::claim_folder(config.checkpoint.dir);
  if (run.request.resumed.none_intact) files_.set_aside();
  writer = std::make_unique<engine::Checkpointer>(
      config.pipeline.stages * config.pipeline.tensor, config.checkpoint.every,
      [&learner](int stage) { return learner.checkpoint(stage); },
      [this](const stages::StateDict& state, std::int64_t samples) {
        files_.write(run_.team ? run_.team->grid().put_together(state) : state,
                     about_weights(run_, samples, engine::Clock::now()));
      },
      learner.assembled.guard ? &learner.trainer.guard() : nullptr);
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
  io::write_whole(path, stages::to_safetensors(state, about_final()));
}

stages::Metadata Checkpoints::about_final() const {
  const engine::FrameCounts& frames = run_.progress.frames;
  return about_weights(run_, frames.trained + frames.predicted_only, run_.progress.ended);
}

}  // namespace millrace::app
