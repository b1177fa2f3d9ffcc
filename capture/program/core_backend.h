#pragma once

#include <functional>
#include <memory>

#include "capture/backend.h"
#include "capture/program/kernels/kernels.h"

namespace millrace::capture {

/// For CPU cores: recordings are step programs, run by the launching thread and `threads` - 1
/// helpers. \param started called on each helper at its start with its index from 1 on, to pin it.
std::unique_ptr<Backend> make_core_backend(int threads = 1,
                                           const std::function<void(int index)>& started = {},
                                           const kernels::Numerics& numerics = {});

}  // namespace millrace::capture
