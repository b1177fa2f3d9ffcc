#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/files/descriptor.h"

namespace millrace::io {

/// Writes `bytes` to a temporary beside `path`, fsyncs it, renames it to `path` and fsyncs the
/// folder. Creates missing parent folders, preserves the mode of a replaced file and removes
/// temporaries of killed processes. `previous`: name in the same folder under which the replaced
/// file survives; "": none. A pipe, a device or a standard stream is written to instead.
/// Thread-safe. Throws std::runtime_error "PATH: cause", and changes no file then.
void write_whole(const std::string& path, std::string_view bytes, const std::string& previous = "");

/// STDOUT_FILENO for "-", or the one of stdout and stderr that is open on the file `path`, as
/// /dev/stdout may be; -1: none, or a terminal or another device. What is written there follows
/// what was written before.
int standard_stream(const std::string& path);

/// `path` with a leading "~/" replaced by the user's home folder.
std::string at_home(const std::string& path);

/// Its folder; "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& file);

/// Where the symbolic links of `path` lead, even if nothing is there.
std::filesystem::path behind_links(const std::string& path);

/// Whether both name, or will name, the same regular file, be it by a link.
bool same_file(const std::string& a, const std::string& b);

/// Fsyncs the finished file `temporary`, renames it to `path` in the same folder and fsyncs the
/// folder. Throws std::runtime_error.
void put_in_place(const std::string& temporary, const std::string& path);

/// Locks against other writers: on the folder, and on its name on this machine, which stays locked
/// if the folder is removed and created again.
struct FolderClaim {
  Descriptor folder, name;
};

/// Creates the folder if missing and locks it while the result lives. No effect where the system
/// lacks these locks. Throws std::runtime_error "PATH: another run writes it".
FolderClaim claim_folder(const std::string& path);

}  // namespace millrace::io
