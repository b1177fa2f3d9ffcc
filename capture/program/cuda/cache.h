// Results that stay valid on this machine until kernels or compiler change, one file each in
// $XDG_CACHE_HOME/millrace/kernels (or ~/.cache/...): compiled kernels and choices among them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace millrace::gpu {

/// False if missing or damaged. Thread-safe.
bool read_cached(const std::string& key, std::string& content);
/// Warns once on stderr if nothing can be written. Thread-safe.
void write_cached(const std::string& key, const std::string& content);

/// Kernels chosen by timing, saved so that a resumed run uses the same. Keyed by task, e.g. "NVIDIA
/// H100 80GB HBM3: forward 16x64x64 -> ...".
using Choices = std::map<std::string, std::string>;

/// All choices of this process, including those of take_choices(). Thread-safe.
Choices choices();
/// Choices of a checkpoint, which override any timing from now on.
void take_choices(const Choices& made);

/// The index in `names` to use for `task`: as this process or the cache folder chose before, else
/// the one `time` (of an index; in any unit; infinity: unknown) finds fastest. Thread-safe.
std::size_t choose(const std::string& task, const std::vector<std::string>& names,
                   const std::function<double(std::size_t)>& time);

}  // namespace millrace::gpu
