// Results that stay valid on this machine until kernels or compiler change, one file each in
// $XDG_CACHE_HOME/millrace/kernels (or ~/.cache/...).
#pragma once

#include <string>

namespace millrace::gpu {

/// False if missing or damaged. Thread-safe.
bool read_cached(const std::string& key, std::string& content);
/// Warns once on stderr if nothing can be written. Thread-safe.
void write_cached(const std::string& key, const std::string& content);

}  // namespace millrace::gpu
