#include "io/files/whole_file.h"

#include <atomic>      // a number for each temporary
#include <cerrno>      // causes
#include <cstring>     // std::strerror
#include <filesystem>  // folders, links, rename
#include <stdexcept>   // errors

#include <fcntl.h>   // open
#include <unistd.h>  // write, fsync

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& cause) {
  throw std::runtime_error(path + ": " + cause);
}
[[noreturn]] void fail(const std::string& path) {
  fail(path, std::strerror(errno));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int close() {
    const int result = fd_ < 0 ? 0 : ::close(fd_);
    fd_ = -1;
    return result;
  }

 private:
  int fd_;
};

// Removes the temporary unless it has been renamed.
struct Temporary {
  std::string path;
  bool kept = false;
  ~Temporary() {
    if (!kept) ::unlink(path.c_str());
  }
};

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) fail(path);
    if (written > 0) bytes.remove_prefix(written);
  }
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

void sync_folder(const fs::path& folder, const std::string& path) {
  const Descriptor dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems can't sync a folder (EINVAL); the rename has been done all the same.
  if (dir.get() < 0 || (::fsync(dir.get()) != 0 && errno != EINVAL)) fail(path);
}

// /dev/stdout, a pipe: there is nothing to rename over, and replacing the name would harm.
void write_stream(const std::string& path, std::string_view bytes) {
  Descriptor out(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (out.get() < 0) fail(path);
  write_all(out.get(), bytes, path);
  if (out.close() != 0) fail(path);
}

void replace_file(const fs::path& target, std::string_view bytes, const std::string& path) {
  static std::atomic<unsigned> serial{0};
  const fs::path folder = folder_of(target);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(path, error.message());

  const std::string name = target.filename().string() + ".tmp." + std::to_string(::getpid()) + "." +
                           std::to_string(serial.fetch_add(1));
  Descriptor file(::open((folder / name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) fail(path);
  Temporary temporary{folder / name};
  write_all(file.get(), bytes, path);
  if (::fsync(file.get()) != 0 || file.close() != 0) fail(path);
  fs::rename(temporary.path, target, error);
  if (error) fail(path, error.message());
  temporary.kept = true;
  sync_folder(folder, path);
}

}  // namespace

void put_in_place(const std::string& temporary, const std::string& path) {
  Descriptor file(::open(temporary.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 || ::fsync(file.get()) != 0 || file.close() != 0) fail(path);
  std::error_code error;
  fs::rename(temporary, path, error);
  if (error) fail(path, error.message());
  sync_folder(folder_of(path), path);
}

void write_whole(const std::string& path, std::string_view bytes) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);  // follows links
  if (fs::is_directory(status)) fail(path, "is a folder");
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_stream(path, bytes);
  // The file that a link names is replaced, not the link.
  fs::path target = path;
  if (fs::is_regular_file(status) && fs::is_symlink(fs::symlink_status(path, error))) {
    target = fs::canonical(path, error);
    if (error) fail(path, error.message());
  }
  replace_file(target, bytes, path);
}

}  // namespace millrace::io
