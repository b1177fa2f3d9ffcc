// Preloaded into the program: makes one call that writes fail, or cuts the power at it. The file
// "fault" in the working directory says which: "FOLDER NUMBER KIND", where KIND is count, enospc,
// eio, erofs, short or power. Two are of the whole process: names, the name service never answers;
// threads, no more than NUMBER threads start beside the first. Calls on files below FOLDER are
// counted from 1; count writes their number to the file "calls".
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace {

template <class Function>
Function* next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name) next(&::name, #name)

struct Plan {
  std::string folder, kind;
  long number = 0;
};

/// One for each process: a fork has its own working directory and plan.
struct State {
  std::mutex mutex;
  pid_t owner = 0;
  Plan plan;
  long calls = 0;
  // What a power cut takes: files written to since their last sync, by inode.
  std::set<ino_t> unsynced;
  std::map<ino_t, std::string> paths;  ///< their current paths
};

State& state() {
  static State* const all = new State;
  return *all;
}

/// The path of an open file below the folder, else "".
std::string path_of(const State& s, int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path);
  if (size <= 0) return "";
  const std::string name(path, std::size_t(size));
  return name.starts_with(s.plan.folder) ? name : "";
}

bool below(const State& s, const char* path) {
  if (path[0] == '/') return std::string(path).starts_with(s.plan.folder);
  char here[PATH_MAX];
  return getcwd(here, sizeof here) && (std::string(here) + "/" + path).starts_with(s.plan.folder);
}

/// Reads the plan once a process; false: there is none.
bool planned(State& s) {
  if (s.owner == getpid()) return !s.plan.kind.empty();
  s.owner = getpid();
  s.plan = {};
  s.calls = 0;
  char text[PATH_MAX + 64] = "", folder[PATH_MAX], kind[32];
  const int fd = NEXT(open)("fault", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size > 0 && std::sscanf(text, "%4095s %ld %31s", folder, &s.plan.number, kind) == 3) {
    s.plan.folder = folder;
    s.plan.kind = kind;
  }
  return !s.plan.kind.empty();
}

/// Empties the files that were not synced and ends the process.
[[noreturn]] void cut_power(State& s) {
  for (const ino_t inode : s.unsynced) (void)!NEXT(truncate)(s.paths[inode].c_str(), 0);
  _exit(99);
}

void note_calls(const State& s) {
  char text[32];
  const int size = std::snprintf(text, sizeof text, "%ld", s.calls);
  const int fd = NEXT(open)("calls", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  (void)!NEXT(write)(fd, text, std::size_t(size));
  close(fd);
}

/// 0: make the call; an errno: fail with it; -1: write half.
int fate(State& s, bool writes) {
  ++s.calls;
  if (s.plan.kind == "count") note_calls(s);
  if (s.plan.kind == "short") {  // the next write
    if (!writes || s.calls < s.plan.number) return 0;
    s.plan.number = LONG_MAX;
    return -1;
  }
  if (s.calls != s.plan.number) return 0;
  const std::string& kind = s.plan.kind;
  if (kind == "power") cut_power(s);
  return kind == "enospc" ? ENOSPC : kind == "eio" ? EIO : kind == "erofs" ? EROFS : 0;
}

/// The same for a call on `fd`; 0 if it is not below the folder.
int fate_of(int fd, bool writes) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!planned(s) || path_of(s, fd).empty()) return 0;
  return fate(s, writes);
}
int fate_of(const char* path) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return planned(s) && below(s, path) ? fate(s, false) : 0;
}

void written(int fd) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  struct stat status {};
  if (!planned(s) || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return;
  const std::string path = path_of(s, fd);
  if (path.empty()) return;
  s.unsynced.insert(status.st_ino);
  s.paths[status.st_ino] = path;
}
void synced(int fd) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  struct stat status {};
  if (planned(s) && fstat(fd, &status) == 0) s.unsynced.erase(status.st_ino);
}
void renamed(const char* to) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  struct stat status {};
  if (planned(s) && ::stat(to, &status) == 0 && s.paths.contains(status.st_ino))
    s.paths[status.st_ino] = to;
}

int failed(int cause) {
  errno = cause;
  return -1;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, std::size_t size) {
  const int cause = fate_of(fd, true);
  if (cause > 0) return failed(cause);
  const ssize_t done = NEXT(write)(fd, bytes, cause < 0 && size > 1 ? size / 2 : size);
  if (done > 0) written(fd);
  return done;
}

int fsync(int fd) {
  const int cause = fate_of(fd, false);
  if (cause > 0) return failed(cause);
  const int done = NEXT(fsync)(fd);
  if (done == 0) synced(fd);
  return done;
}

int rename(const char* from, const char* to) {
  const int cause = fate_of(to);
  if (cause > 0) return failed(cause);
  const int done = NEXT(rename)(from, to);
  if (done == 0) renamed(to);
  return done;
}

int link(const char* from, const char* to) {
  const int cause = fate_of(to);
  return cause > 0 ? failed(cause) : NEXT(link)(from, to);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* with) {
  static std::atomic<long> alive{0};
  struct Begun {
    void* (*start)(void*);
    void* with;
  };
  State& s = state();
  {
    const std::lock_guard lock(s.mutex);
    if (planned(s) && s.plan.kind == "threads" && alive >= s.plan.number) return EAGAIN;
  }
  const auto begin = [](void* begun) -> void* {
    const std::unique_ptr<Begun> mine(static_cast<Begun*>(begun));
    void* const end = mine->start(mine->with);
    --alive;
    return end;
  };
  ++alive;
  const int failed = NEXT(pthread_create)(thread, attributes, begin, new Begun{start, with});
  if (failed != 0) --alive;
  return failed;
}

int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  bool silent = false;
  {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    silent = planned(s) && s.plan.kind == "names";
  }
  while (silent) pause();
  return NEXT(getaddrinfo)(node, service, hints, found);
}

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  if ((flags & O_ACCMODE) != O_RDONLY) {
    const int cause = fate_of(path);
    if (cause > 0) return failed(cause);
  }
  return NEXT(open)(path, flags, mode);
}

}  // extern "C"
