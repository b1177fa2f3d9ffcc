#include "io/files/whole_file.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& cause) {
  throw std::runtime_error(path + ": " + cause);
}
[[noreturn]] void fail(const std::string& path) {
  fail(path, std::strerror(errno));
}

struct Temporary {
  std::string name;
  Descriptor file = Descriptor();
  ~Temporary() { ::unlink(name.c_str()); }
};

constexpr int kReaderPatience = 5000;  // ms to wait for a pipe's reader

/// Writes at most `piece` bytes at a time.
void write_all(int fd, std::string_view bytes, const std::string& path,
               std::size_t piece = std::numeric_limits<std::size_t>::max()) {
  while (!bytes.empty()) {
    pollfd reader{.fd = fd, .events = POLLOUT, .revents = 0};
    if (::poll(&reader, 1, kReaderPatience) == 0) fail(path, "is not being read");
    const ssize_t written = ::write(fd, bytes.data(), std::min(bytes.size(), piece));
    if (written < 0 && errno != EINTR && errno != EAGAIN) fail(path);
    if (written > 0) bytes.remove_prefix(written);
  }
}

void sync_folder(const fs::path& folder, const std::string& path) {
  const Descriptor dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems can't sync a folder (EINVAL); the rename is done anyway.
  if (!dir || (::fsync(dir.get()) != 0 && errno != EINVAL)) fail(path);
}

// A pipe or a standard stream must be written to, not replaced. A standard stream is not opened
// anew, since that would write from the start of its file.
void write_stream(const std::string& path, std::string_view bytes, int standard) {
  if (standard >= 0) std::fflush(stdout);
  Descriptor out(standard >= 0 ? ::dup(standard)
                               : ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (!out) fail(path, errno == ENXIO ? "is not being read" : std::strerror(errno));
  write_all(out.get(), bytes, path, PIPE_BUF);  // so many never block after poll()
  if (out.close() != 0) fail(path);
}

constexpr std::string_view kMark = ".tmp.";

/// Earlier versions put a dot between the digits.
bool is_temporary(std::string_view name, std::string_view of) {
  if (!name.starts_with(of) || !name.substr(of.size()).starts_with(kMark)) return false;
  const std::string_view tail = name.substr(of.size() + kMark.size());
  return !tail.empty() && tail.find_first_not_of("0123456789.") == tail.npos;
}

/// Removes temporaries of killed runs, once per process and target; live runs hold locks on theirs.
void remove_leftovers(const fs::path& folder, const std::string& target) {
  static std::mutex mutex;
  static std::set<fs::path> seen;
  {
    const std::lock_guard lock(mutex);
    if (!seen.insert(fs::absolute(folder) / target).second) return;
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!is_temporary(entry.path().filename().string(), target)) continue;
    const Descriptor file(
        ::open(entry.path().c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(entry.path().c_str());
  }
}

/// Random digits, since in containers every run has the same process number.
std::string temporary_name(const fs::path& target) {
  return target.string() + std::string(kMark) + std::to_string(std::random_device()());
}

Temporary open_temporary(const fs::path& target, const std::string& path) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string name = temporary_name(target);
    Descriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file && errno != EEXIST) fail(path);
    // Another process may have removed it as a leftover before the lock.
    if (!file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) continue;
    struct stat now {};
    if (::fstat(file.get(), &now) == 0 && now.st_nlink > 0) return {name, std::move(file)};
  }
  fail(path, "cannot create a temporary beside it");
}

/// Gives `target` a second name; `target` exists throughout, where the system has hard links.
void keep_as(const fs::path& previous, const fs::path& target, const std::string& path) {
  std::error_code error;
  if (!fs::exists(target, error)) return;
  // Removed at the end: rename() leaves both if they were already links to one file.
  const Temporary link{temporary_name(target)};
  fs::create_hard_link(target, link.name, error);
  const fs::path from = error ? target : fs::path(link.name);
  fs::rename(from, previous, error);
  if (error) fail(path, error.message());
}

void put_at(const fs::path& from, const fs::path& to, const std::string& path) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail(path, error.message());
  sync_folder(folder_of(to), path);
}

void replace_file(const fs::path& target, std::string_view bytes, const std::string& previous,
                  const std::string& path) {
  const fs::path folder = folder_of(target);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(path, error.message());
  remove_leftovers(folder, target.filename().string());

  Temporary temporary = open_temporary(target, path);
  struct stat before {};
  const bool replaces = ::stat(target.c_str(), &before) == 0;
  if (replaces && ::fchmod(temporary.file.get(), before.st_mode & 07777) != 0) fail(path);
  write_all(temporary.file.get(), bytes, path);
  if (::fsync(temporary.file.get()) != 0) fail(path);
  if (!previous.empty()) keep_as(folder / previous, target, path);
  put_at(temporary.name, target, path);  // still locked
  if (temporary.file.close() != 0) fail(path);
}

/// A lock by folder and name of `path`: an abstract socket, which exists as long as its descriptor.
Descriptor claim_name(const std::string& path) {
  std::error_code ignored;
  const fs::path whole = fs::canonical(path, ignored);
  struct stat parent {};
  if (whole.empty() || ::stat(whole.parent_path().c_str(), &parent) != 0) return Descriptor();
  const std::string name = "millrace:" + std::to_string(parent.st_dev) + ":" +
                           std::to_string(parent.st_ino) + ":" +
                           std::to_string(std::hash<std::string>()(whole.filename()));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 &&
      errno == EADDRINUSE)
    fail(path, "another run writes it");
  return socket;
}

}  // namespace

int standard_stream(const std::string& path) {
  if (path == "-") return STDOUT_FILENO;
  struct stat there {
  }, open{};
  if (::stat(path.c_str(), &there) != 0 || S_ISCHR(there.st_mode)) return -1;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    if (::fstat(stream, &open) == 0 && open.st_dev == there.st_dev && open.st_ino == there.st_ino)
      return stream;
  return -1;
}

std::string at_home(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return home && path.starts_with("~/") ? home + path.substr(1) : path;
}

std::filesystem::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

std::filesystem::path behind_links(const std::string& path) {
  constexpr int kMost = 40;  // as in the kernel
  fs::path target = path;
  std::error_code error;
  for (int link = 0; link < kMost && fs::is_symlink(fs::symlink_status(target, error)); ++link)
    target = target.parent_path() / fs::read_symlink(target, error);
  return target;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  const fs::file_status there = fs::status(a, error);
  if (fs::exists(there) && !fs::is_regular_file(there)) return false;  // devices may be shared
  if (fs::exists(there) && fs::exists(b, error)) return fs::equivalent(a, b, error);
  return fs::weakly_canonical(behind_links(a), error) ==
         fs::weakly_canonical(behind_links(b), error);
}

void put_in_place(const std::string& temporary, const std::string& path) {
  Descriptor file(::open(temporary.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || ::fsync(file.get()) != 0 || file.close() != 0) fail(path);
  put_at(temporary, path, path);
}

void write_whole(const std::string& path, std::string_view bytes, const std::string& previous) {
  std::error_code error;
  const int standard = standard_stream(path);
  if (standard >= 0) return write_stream(path, bytes, standard);
  const fs::file_status status = fs::status(path, error);  // follows links
  if (fs::is_directory(status)) fail(path, "is a folder");
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_stream(path, bytes, -1);
  replace_file(behind_links(path), bytes, previous, path);
}

FolderClaim claim_folder(const std::string& path) {
  std::error_code ignored;  // a later write reports it
  fs::create_directories(path, ignored);
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool taken = folder && ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0;
  if (taken && errno == EWOULDBLOCK) fail(path, "another run writes it");
  return {std::move(folder), claim_name(path)};
}

}  // namespace millrace::io
