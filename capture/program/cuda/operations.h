// Nodes made ready to run on a GPU, by kernels that are compiled for it.
#pragma once

#include "capture/backend.h"
#include "capture/program/operations.h"

#include <string>
#include <vector>

namespace millrace::program {

/// Has a GPU's backend record step programs, all in one arena; empty where the device has no
/// kernels of ours: its steps stay LibTorch's operators.
capture::Lowering gpu_lowering(c10::Device device, const kernels::Numerics& numerics = {});

/// The kernels that a convolution, or its weights' gradient by itself, could run by on the current
/// device, the one chosen by shape first, and the task of gpu::choose() that decides.
struct KernelChoice {
  std::string task;
  std::vector<std::string> names;
};
KernelChoice kernel_choice(const kernels::Convolution& convolution);

/// As prepare(): the operation gives the current stream its kernels, and waits for nothing.
/// Compiles those that are new.
std::unique_ptr<Prepared> prepare_on_gpu(const Node& node);

/// Gathers the weights' gradients of a program, and notes whose weights no node before it writes.
void arrange_for_gpu(std::vector<Node>& nodes);

}  // namespace millrace::program
