// Step programs as a Backend.
#pragma once

#include <memory>

#include "capture/backend.h"
#include "capture/program/kernel_choices.h"

namespace millrace::capture {

/// A CPU core: recordings are step programs, run on the thread that launches them. Choices of
/// kernels are shared with other backends, so that stages and slots agree.
std::unique_ptr<Backend> make_core_backend(std::shared_ptr<program::KernelChoices> choices);

}  // namespace millrace::capture
