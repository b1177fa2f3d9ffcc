// From a config to the parts of a run. Shared by run, check and bench.
#pragma once

#include <string>

#include "engine/trainer/trainer.h"
#include "stages/model_spec.h"
#include "tools/app/config/config.h"
#include "tools/app/resume.h"

namespace millrace::app {

/// Trainer options for samples of `shape`; sizes may be 0 (unknown), for checking alone. Loads and
/// checks the weights file or the checkpoint, finds the devices, opens no source. `resumed`, unless
/// null, is set to where the weights come from. `targets`: samples come with targets, which then
/// may have any shape. Throws ConfigError naming the place in the config.
engine::TrainerOptions assemble(const Config& config, const stages::ImageShape& shape,
                                Resumed* resumed = nullptr, bool targets = false);

/// Throws ConfigError unless `network` tells `classes` classes, as the stream's frames are told.
void require_classes(const Config& config, const stages::Network& network, int classes);

/// Channels of a target that the input itself fills, before what it is told.
std::int64_t channels_before(const Config& config);

/// Whether people tell classes while it runs, over the page or standard input.
bool told_live(const Config& config);

/// The shape as far as the config says.
stages::ImageShape configured_shape(const Config& config);
/// The same; a side that it leaves open is the source's own, which is opened for it.
stages::ImageShape sample_of(const Config& config);

}  // namespace millrace::app
