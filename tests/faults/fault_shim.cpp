// Preloaded into the program: makes calls fail or return late, each once, or cuts the power at one.
// The file "fault" in the working directory has the plan: "FOLDER NUMBER KIND [NUMBER KIND]...".
// KIND, for calls that write to files below FOLDER: count, enospc, eio, erofs, short, power or slow
// (by a second); for calls that read them: unread (EIO) or late; for calls that wait: interrupted
// or overslept; for allocations of at least 1 KiB: memory; for MPI's sends of at least 1 KiB over
// TCP: reset (ECONNRESET). Two apply to the whole process: names, the name service never answers;
// threads, no more than NUMBER threads start beside the first. Calls are counted from 1; count
// writes the number of each kind, in this order, to the file "calls". Faults that happened are
// appended to the file "fired".
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

extern "C" void* __libc_malloc(std::size_t size);

namespace {

template <class Function>
Function* next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name) next(&::name, #name)

struct Fault {
  long number = 0;
  std::string kind;
};

/// allocations until one fails; 0: none will
std::atomic<long> allocations_left{0};

/// One per process: a fork has its own working directory and plan.
struct State {
  std::mutex mutex;
  pid_t owner = 0;
  std::string folder;
  std::vector<Fault> faults;
  long calls = 0, reads = 0, waits = 0, sent = 0;
  /// Lost by a power cut: files written to since their last sync, by inode.
  std::map<ino_t, std::string> unsynced;
};

State& state() {
  static State* const all = new State;
  return *all;
}

/// The path of an open file below the folder, otherwise "".
std::string path_of(const State& s, int fd) {
  std::error_code error;
  const std::string name =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
  return name.starts_with(s.folder) ? name : "";
}

bool is_tcp(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
         name.ss_family == AF_INET;
}

std::size_t bytes_of(const iovec* parts, int count) {
  return std::accumulate(parts, parts + count, std::size_t(0),
                         [](std::size_t sum, const iovec& part) { return sum + part.iov_len; });
}

bool below(const State& s, const char* path) {
  if (path[0] == '/') return std::string(path).starts_with(s.folder);
  char here[PATH_MAX];
  return getcwd(here, sizeof here) && (std::string(here) + "/" + path).starts_with(s.folder);
}

/// Reads the plan once per process; false: there is none.
bool planned(State& s) {
  if (s.owner == getpid()) return !s.faults.empty();
  s.owner = getpid();
  s.folder.clear();
  s.faults.clear();
  s.calls = s.reads = s.waits = s.sent = 0;
  char text[PATH_MAX + 64] = "", folder[PATH_MAX], kind[32];
  const int fd = NEXT(open)("fault", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  (void)!NEXT(read)(fd, text, sizeof text - 1);
  close(fd);
  int at = 0, size = 0;
  long number = 0;
  if (std::sscanf(text, "%4095s%n", folder, &at) == 1) s.folder = folder;
  for (; std::sscanf(text + at, "%ld %31s%n", &number, kind, &size) == 2; at += size) {
    s.faults.push_back({number, kind});
    if (s.faults.back().kind == "memory") allocations_left = number;
    if (s.faults.back().kind == "count") allocations_left = LONG_MAX;
  }
  return !s.faults.empty();
}

/// The fault of that kind; null: it is not planned.
Fault* planned(State& s, const char* kind) {
  if (!planned(s)) return nullptr;
  for (Fault& fault : s.faults) {
    if (fault.kind == kind) return &fault;
  }
  return nullptr;
}

void note(const char* file, int flag, const std::string& text) {
  const int fd = NEXT(open)(file, O_WRONLY | O_CREAT | flag | O_CLOEXEC, 0600);
  if (fd < 0) return;
  (void)!NEXT(write)(fd, text.data(), text.size());
  close(fd);
}
void note_fired(const char* kind) {
  note("fired", O_APPEND, kind + std::string("\n"));
}

/// Empties the files that were not synced and ends the process.
[[noreturn]] void cut_power(State& s) {
  for (const auto& [inode, path] : s.unsynced) (void)!NEXT(truncate)(path.c_str(), 0);
  _exit(99);
}

void note_calls(const State& s) {
  char text[96];
  std::snprintf(text, sizeof text, "%ld %ld %ld %ld", s.calls, s.reads, s.waits,
                LONG_MAX - allocations_left.load());
  note("calls", O_TRUNC, text);
}

/// Counts a call; whether it gets the planned fault `kind`.
bool comes(State& s, const char* kind, long count) {
  Fault* const fault = planned(s, kind);
  if (fault == nullptr || fault->number != count) return false;
  note_fired(kind);
  return true;
}

/// 0: make the call; an errno: fail with it; -1: write half.
int fate(State& s, bool writes) {
  ++s.calls;
  if (planned(s, "count")) note_calls(s);
  if (comes(s, "power", s.calls)) cut_power(s);
  if (comes(s, "slow", s.calls)) sleep(1);
  for (const auto& [kind, cause] : {std::pair{"enospc", ENOSPC}, {"eio", EIO}, {"erofs", EROFS}})
    if (comes(s, kind, s.calls)) return cause;
  Fault* const half = planned(s, "short");
  if (!half || !writes || s.calls < half->number) return 0;  // the next write
  half->number = LONG_MAX;
  note_fired("short");
  return -1;
}

/// `ask(state)`, under its lock; nothing where nothing is planned.
template <class Ask>
auto if_planned(const Ask& ask) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return planned(s) ? ask(s) : decltype(ask(s))();
}

/// Whether a wait is interrupted. An overslept wait sleeps here.
bool interrupted() {
  const auto [overslept, ends] = if_planned([](State& s) {
    ++s.waits;
    return std::pair{comes(s, "overslept", s.waits), comes(s, "interrupted", s.waits)};
  });
  if (overslept) sleep(1);
  return ends;
}

/// Whether this allocation fails.
bool starves(std::size_t size) {
  if (size < 1024 || allocations_left.load(std::memory_order_relaxed) <= 0) return false;
  if (allocations_left.fetch_sub(1) != 1) return false;
  note_fired("memory");
  return true;
}

/// fate() of a call on `fd`; 0 if it is not below the folder.
int fate_of(int fd, bool writes) {
  return if_planned([=](State& s) { return path_of(s, fd).empty() ? 0 : fate(s, writes); });
}
int fate_of(const char* path) {
  return if_planned([=](State& s) { return below(s, path) ? fate(s, false) : 0; });
}

void written(int fd) {
  if_planned([=](State& s) {
    struct stat status {};
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return;
    const std::string path = path_of(s, fd);
    if (!path.empty()) s.unsynced[status.st_ino] = path;
  });
}
void synced(int fd) {
  if_planned([=](State& s) {
    struct stat status {};
    if (fstat(fd, &status) == 0) s.unsynced.erase(status.st_ino);
  });
}
void renamed(const char* to) {
  if_planned([=](State& s) {
    struct stat status {};
    if (::stat(to, &status) == 0 && s.unsynced.contains(status.st_ino))
      s.unsynced[status.st_ino] = to;
  });
}

int failed(int cause) {
  errno = cause;
  return -1;
}

}  // namespace

extern "C" {

void* malloc(std::size_t size) {
  if (!starves(size)) return __libc_malloc(size);
  errno = ENOMEM;
  return nullptr;
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  return starves(size) ? ENOMEM : NEXT(posix_memalign)(memory, alignment, size);
}

ssize_t read(int fd, void* bytes, std::size_t size) {
  const auto [late, fails] = if_planned([=](State& s) {
    if (path_of(s, fd).empty()) return std::pair{false, false};
    ++s.reads;
    return std::pair{comes(s, "late", s.reads), comes(s, "unread", s.reads)};
  });
  if (late) sleep(1);
  return fails ? failed(EIO) : NEXT(read)(fd, bytes, size);
}

int poll(pollfd* those, nfds_t count, int ms) {
  return interrupted() ? failed(EINTR) : NEXT(poll)(those, count, ms);
}

int epoll_wait(int fd, epoll_event* events, int most, int ms) {
  return interrupted() ? failed(EINTR) : NEXT(epoll_wait)(fd, events, most, ms);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  // Any wait may return spuriously.
  return interrupted() ? 0 : NEXT(pthread_cond_clockwait)(condition, mutex, clock, until);
}

ssize_t write(int fd, const void* bytes, std::size_t size) {
  const int cause = fate_of(fd, true);
  if (cause > 0) return failed(cause);
  const ssize_t done = NEXT(write)(fd, bytes, cause < 0 && size > 1 ? size / 2 : size);
  if (done > 0) written(fd);
  return done;
}

ssize_t writev(int fd, const iovec* parts, int count) {
  const bool reset = if_planned([=](State& s) {
    return is_tcp(fd) && bytes_of(parts, count) >= 1024 && comes(s, "reset", ++s.sent);
  });
  return reset ? failed(ECONNRESET) : NEXT(writev)(fd, parts, count);
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
  const bool too_many = if_planned([](State& s) {
    const Fault* const fault = planned(s, "threads");
    return fault && alive >= fault->number;
  });
  if (too_many) return EAGAIN;
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
  while (if_planned([](State& s) { return planned(s, "names") != nullptr; })) pause();
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
