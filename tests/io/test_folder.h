// A temporary folder, removed at the end of a test.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include <gtest/gtest.h>

namespace millrace::io {

class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "millrace_io_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TestFolder() {
    // Not std::filesystem::remove_all: LibTorch overrides it with one that crashes.
    const auto remove = [](const char* path, const struct stat*, int, FTW*) {
      return ::remove(path);
    };
    ::nftw(path_.c_str(), remove, 16, FTW_DEPTH | FTW_PHYS);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// Tests with a folder each.
class FolderTest : public testing::Test {
 protected:
  const TestFolder folder;
};

/// How many a folder has.
inline int entries(const std::string& folder) {
  return int(std::distance(std::filesystem::directory_iterator(folder), {}));
}

inline std::string bytes_of(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

inline void put_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace millrace::io
