#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/source/source.h"

namespace millrace::io {

/// A printf-like pattern with one integer conversion in the file name: "dir/%05d.png".
struct NumberedName {
  std::string folder;
  std::string before;  ///< parts of the name around the number
  std::string after;
  int digits = 0;   ///< least width
  char fill = ' ';  ///< '0' or ' '

  std::string path(std::int64_t number) const;
};

/// Throws std::invalid_argument with the cause unless there is exactly one conversion.
NumberedName parse_numbered(const std::string& pattern);

/// The pictures in a folder, or files that match a name with * and ?, sorted by name.
std::vector<std::string> list_pictures(const std::string& folder_or_glob);

/// The folders of pictures in one that holds none itself, each of a class, and what
/// list_pictures() gives of each; no hidden ones.
std::map<std::string, std::vector<std::string>> class_folders(const std::string& folder);

/// Names of classes, if they are folders of pictures: those in `options`, otherwise the folders'.
/// Throws SourceError for a folder that `options` does not name.
std::vector<std::string> folder_classes(const SourceOptions& options);

struct Numbers {
  std::int64_t first = -1;  ///< the lowest; -1: none
  std::int64_t count = 0;
};

/// Counts the existing files from number `least` on.
Numbers numbers_from(const NumberedName& name, std::int64_t least);

/// Whether its ending, and of PNG and WebP its first bytes, say that it holds a single picture.
bool is_still(const std::filesystem::path& path);

/// Whether its name begins with a dot.
bool is_hidden(const std::filesystem::path& path);

}  // namespace millrace::io
