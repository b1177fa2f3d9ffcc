// A trainer's options from a config, and checks of its files and devices; for run, check and bench.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "engine/trainer/trainer.h"
#include "stages/model_spec.h"
#include "tools/app/checkpoint_files.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Trainer options for samples of `shape`; sizes may be 0 (unknown) if the options are only
/// checked. Loads and checks the weights file or the checkpoint and finds the devices; opens no
/// source. `resumed`, unless null, receives the checkpoint that the weights come from. `targets`:
/// samples come with targets of any shape, unless the config says "label". Throws ConfigError with
/// the place in the config.
engine::TrainerOptions assemble(const Config& config, const stages::ImageShape& shape,
                                Resumed* resumed = nullptr, bool targets = false);

/// Returns check(); an Error it throws becomes a ConfigError about `key`.
template <class Error = std::invalid_argument, class Check>
auto check_key(const Config& config, const std::string& key, const Check& check) {
  try {
    return check();
  } catch (const Error& error) {
    throw config.error(key, error.what());
  }
}

/// How many past frames a sample holds, whether the network predicts a change. Throws ConfigError.
stages::Forecast forecast_of(const Config& config);
stages::ModelSpec model_of(const Config& config);

/// Throws std::invalid_argument unless `state` fits; it may include optimizer state.
void require_fit(const stages::StateDict& state, const stages::Network& network);

/// `config` with open choices filled in from `options`, so that it reproduces the run.
Config as_run(Config config, const engine::TrainerOptions& options);

/// replay.kind, with "auto" resolved for `network`: see check --keys. Throws ConfigError if it is
/// "ridge" and does not fit.
std::string replay_of(const Config& config, const stages::Network& network);

/// "none"; "ridge of 256 labelled frames, 13 MB; ..."; or "reservoir of 256 samples, 37.7 MB; as
/// many as real time leaves room for". `live`: whether frames arrive at their own rate; none:
/// unknown.
std::string describe_replay(const Config& config, const engine::TrainerOptions& options,
                            std::optional<bool> live);

/// Throws ConfigError if the stages on cores, or the samples to replay, take more memory than there
/// is: what is missing, and what would fit. Sizes may be 0 (unknown).
void require_memory(const Config& config, const engine::TrainerOptions& options);

/// Throws ConfigError unless `network` has as many outputs as the stream has classes.
void require_classes(const Config& config, const stages::Network& network, int classes);

/// Leading channels of a target that repeat the input.
std::int64_t channels_before(const Config& config);

/// Whether users give labels during the run, on the page or standard input.
bool told_live(const Config& config);

/// Resolves correction.kind "auto": "none" if gradients are fresh; for networks that predict
/// changes, "deep-supervision" where it fits, with heads of kernel 3; otherwise "inverse-age", the
/// best rule for gradients from downstream alone, with beta1 = 0, since a running mean makes old
/// gradients even older. Networks that predict changes also get a warm-up of 50 updates unless the
/// config sets the optimizer's kind or schedule. Keys that the config sets stay. See
/// docs/old-gradients.md.
void choose_correction(const Config& config, const engine::Schedule& schedule,
                       engine::TrainerOptions& options);
bool has_beta1(const stages::OptimizerSpec& optimizer);
/// "inverse-age (auto): rate / (1 + age in frames), adam's beta1 0".
std::string describe_correction(const Config& config, const engine::TrainerOptions& options);
/// The benefit and cost of correction.kind "local"; "" if it can't be used or gains nothing.
std::string local_note(const engine::TrainerOptions& options);

/// The shape of a sample; 0 for sizes that the config leaves open.
stages::ImageShape configured_shape(const Config& config);
/// Opens the source if the config leaves a size open.
stages::ImageShape sample_of(const Config& config);

}  // namespace millrace::app
