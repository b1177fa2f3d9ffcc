// Files are written whole or not at all.
#pragma once

#include <string>       // path
#include <string_view>  // bytes

namespace millrace::io {

/// Writes `bytes` to a temporary beside `path`, fsyncs, renames over `path`, fsyncs the folder.
/// Creates missing parent folders, keeps the mode of a file that it replaces, and removes
/// temporaries that killed processes have left beside `path`. `previous`: the name, in the same
/// folder, under which the file that is replaced stays; "": it goes. Thread-safe. Throws
/// std::runtime_error "PATH: cause"; `path` and the file under `previous` are then as before.
void write_whole(const std::string& path, std::string_view bytes, const std::string& previous = "");

/// Gives a file that is written whole its name, in place of what bore it: fsyncs `temporary`, which
/// lies in the same folder, renames it to `path`, fsyncs the folder. Throws std::runtime_error.
void put_in_place(const std::string& temporary, const std::string& path);

/// Keeps a folder for one writer, until it is destroyed or its process ends, however that ends. On
/// a file system without locks it keeps nobody out.
class FolderClaim {
 public:
  /// Creates missing folders. Throws std::runtime_error "PATH: another run writes it".
  explicit FolderClaim(const std::string& path);
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  const int folder_;
};

}  // namespace millrace::io
