// Kernels chosen by timing, kept so that a resumed run uses the same.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace millrace::gpu {

/// By task, as in "NVIDIA H100 80GB HBM3: forward 16x64x64 -> ...", the kernel's name.
using Choices = std::map<std::string, std::string>;

/// All that this process made or was given. Thread-safe.
Choices choices();
/// Choices of a checkpoint, which override any timing from now on.
void take_choices(const Choices& made);

/// The index in `names` to use for `task`: as this process or the cache folder chose before, else
/// the one `time` (of an index; in any unit; infinity: unknown) finds fastest. Thread-safe.
std::size_t choose(const std::string& task, const std::vector<std::string>& names,
                   const std::function<double(std::size_t)>& time);

}  // namespace millrace::gpu
