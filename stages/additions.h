// What a plug-in adds to the tables of layers and losses.
#pragma once

#include "stages/loss.h"
#include "stages/model_spec.h"

namespace millrace::stages {

/// Both before any thread but the caller's uses the tables. They throw std::invalid_argument if the
/// name is taken, or a layer has a key that no `[[model.layer]]` can have.
void add_layer_type(LayerType type);
void add_loss_type(LossType type);

}  // namespace millrace::stages
