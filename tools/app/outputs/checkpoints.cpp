#include "tools/app/outputs/checkpoints.h"

#include "tools/app/outputs/report.h"

namespace millrace::app {

Checkpoints::Checkpoints(const Request& request, const Progress& progress, const Learner& learner,
                         RankTeam* team)
    : request_(request),
      progress_(progress),
      learner_(learner),
      team_(team),
      files_(request.config.checkpoint.dir) {
  const Config& config = request.config;
  if (config.checkpoint.dir.empty() || !config.weights.learn) return;
  // Also without checkpoint.every: the page or a reloaded config may request a snapshot.
  claim_ = io::claim_folder(config.checkpoint.dir);
  if (request.resumed.none_intact) files_.set_aside();
  writer = std::make_unique<engine::Checkpointer>(
      config.pipeline.stages * config.pipeline.tensor, config.checkpoint.every,
      [&learner](int stage) { return learner.checkpoint(stage); },
      [this](const stages::StateDict& state, std::int64_t samples) {
        files_.write(team_ ? team_->grid().put_together(state) : state,
                     about_weights(request_, progress_, learner_, samples, engine::Clock::now()));
      },
      learner.assembled.guard ? &learner.trainer.guard() : nullptr);
}

void Checkpoints::finish() {
  if (!writer) return;
  writer->finish();
  stages::StateDict state = learner_.checkpoint();
  files_.write(team_ ? team_->whole(std::move(state)) : state, about_final());
}

void Checkpoints::write_weights(const std::string& path) const {
  stages::StateDict state = learner_.trainer.state();
  if (team_) state = team_->whole(std::move(state));
  stages::add_other_names(state, *learner_.assembled.network);
  io::write_whole(path, stages::to_safetensors(state, about_final()));
}

stages::Metadata Checkpoints::about_final() const {
  const engine::FrameCounts& frames = progress_.frames;
  return about_weights(request_, progress_, learner_, frames.predicted(), progress_.ended);
}

}  // namespace millrace::app
