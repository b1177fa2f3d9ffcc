// Files are written whole or not at all.
#pragma once

#include <string>       // path
#include <string_view>  // bytes

namespace millrace::io {

/// Writes `bytes` to a temporary beside `path`, fsyncs, renames over `path`, fsyncs the folder.
/// Creates missing parent folders. Throws std::runtime_error "PATH: cause"; `path` is then as
/// before.
void write_whole(const std::string& path, std::string_view bytes);

}  // namespace millrace::io
