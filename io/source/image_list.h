// Files named by an images: URI.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

/// The lowest existing number, or -1.
std::int64_t first_number(const NumberedName& name);

/// The pictures in a folder, or files that match a name with * and ?, sorted by name.
std::vector<std::string> list_pictures(const std::string& folder_or_glob);

struct LabelledPictures {
  std::vector<std::pair<std::string, int>> pictures;
  int classes = 0;
};
/// For a folder with one folder per class, numbered in order of their names; shuffled: a `seed`
/// gives the same order on every machine. Empty if `folder` holds pictures itself, or none of its
/// folders does. Throws std::invalid_argument beyond 1000 classes.
LabelledPictures list_classes(const std::string& folder, std::uint64_t seed);

}  // namespace millrace::io
