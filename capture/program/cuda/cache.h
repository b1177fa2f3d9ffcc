// What was found out once and holds on this machine until kernels or compiler change, a file each
// in $XDG_CACHE_HOME/millrace/kernels (or ~/.cache/...).
#pragma once

#include <string>

namespace millrace::gpu {

/// False: it is not there, or damaged. Thread-safe.
bool read_cached(const std::string& key, std::string& content);
/// Says once on stderr if nothing can be kept. Thread-safe.
void write_cached(const std::string& key, const std::string& content);

}  // namespace millrace::gpu
