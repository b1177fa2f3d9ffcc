// Which kernels were chosen by timing, so that a run that goes on has them again.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace millrace::gpu {

/// By what is to be done, as "NVIDIA H100 80GB HBM3: forward 16x64x64 -> ...", the kernel's name.
using Choices = std::map<std::string, std::string>;

/// Those that this process has made or was given. Thread-safe.
Choices choices();
/// Of a checkpoint: they hold from now on, whatever a timing would say.
void take_choices(const Choices& made);

/// The one of `names` to take for `task`: as this process or the cache folder chose before, else
/// the one that `time` (of a place in `names`; in any unit) finds fastest, which is kept.
/// Thread-safe.
std::size_t choose(const std::string& task, const std::vector<std::string>& names,
                   const std::function<double(std::size_t)>& time);

}  // namespace millrace::gpu
