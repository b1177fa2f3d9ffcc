#pragma once

#include "capture/backend.h"
#include "capture/program/operations.h"

#include <string>
#include <vector>

namespace millrace::program {

/// Makes a GPU's backend record step programs, all in one arena; empty if we have no kernels for
/// the device: its steps stay LibTorch operators.
capture::Lowering gpu_lowering(c10::Device device, const kernels::Numerics& numerics = {});

/// The kernels that can run a convolution, or its weight gradient alone, on the current device, the
/// one chosen by shape first, and the task for gpu::choose().
struct KernelChoice {
  std::string task;
  std::vector<std::string> names;
};
KernelChoice kernel_choice(const kernels::Convolution& convolution);

/// As prepare(): launches on the current stream without waiting. Compiles kernels that are new.
std::unique_ptr<Prepared> prepare_on_gpu(const Node& node);

/// Gathers a program's weight gradients, and marks weights that no earlier node writes.
void arrange_for_gpu(std::vector<Node>& nodes);

}  // namespace millrace::program
