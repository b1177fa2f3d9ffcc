// Nodes made ready to run on a GPU, by kernels that are compiled for it.
#pragma once

#include "capture/program/operations.h"

namespace millrace::program {

/// Whether there are kernels for `device`; if not, its nodes stay LibTorch's operators.
bool has_gpu_kernels(c10::Device device);

/// As prepare(): the operation gives the current stream its kernels, and waits for nothing.
/// Compiles those that are new.
std::unique_ptr<Prepared> prepare_on_gpu(const Node& node);

/// Moves the weights' gradients of a program to the place of the last one, where a launch makes
/// several: each keeps few of a GPU's processors busy.
void gather_weight_gradients(std::vector<Node>& nodes);

/// millrace::copy_bytes: between any two places, host (pinned), this device or a peer, on the
/// current stream. An operator, so that recordings have it. One call for every kind of copy;
/// LibTorch's own brings in the other device's stream.
void copy_bytes(const at::Tensor& to, const at::Tensor& from);

}  // namespace millrace::program
