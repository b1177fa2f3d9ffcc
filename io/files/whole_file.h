// Writing files atomically.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/files/descriptor.h"

namespace millrace::io {

/// Writes `bytes` to a temporary beside `path`, fsyncs it, renames it to `path` and fsyncs the
/// folder. Creates missing parent folders, keeps the mode of the file that it replaces, and removes
/// temporaries of killed processes. `previous`: a name in the same folder under which the replaced
/// file is kept; "": it is not. Thread-safe. Throws std::runtime_error "PATH: cause"; both files
/// are then unchanged.
void write_whole(const std::string& path, std::string_view bytes, const std::string& previous = "");

/// The file that `path` names, or would: what symbolic links lead to, even if it is not there.
std::filesystem::path behind_links(const std::string& path);

/// Fsyncs the finished file `temporary`, renames it to `path`, in the same folder, and fsyncs the
/// folder. Throws std::runtime_error.
void put_in_place(const std::string& temporary, const std::string& path);

/// Locks a folder, which it makes if it is missing, against other writers while the result lives,
/// or until the process ends. Has no effect on file systems without locks. Throws
/// std::runtime_error "PATH: another run writes it".
Descriptor claim_folder(const std::string& path);

}  // namespace millrace::io
