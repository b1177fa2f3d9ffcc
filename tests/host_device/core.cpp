// Calls, failures that tests ask for, and streams as threads.
#include "tests/host_device/core.h"

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

namespace host_device {

long setting(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atol(text) : otherwise;
}

// Never destroyed: streams' threads outlive main().
std::mutex& lock = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;
std::vector<CUstream_st*>& streams = *new std::vector<CUstream_st*>;
thread_local int current_device = 0;
cudaError_t sticky = cudaSuccess;
int graphs_held = 0, executables_held = 0;

namespace {

const long kJitter = setting("HOST_DEVICE_JITTER_US", 0);
std::atomic<long> most_delay{setting("HOST_DEVICE_DELAY_US", 0)};
std::atomic<int> told{0};
thread_local bool in_work = false;
thread_local cudaError_t last_error = cudaSuccess;
std::map<std::string, int>& counts = *new std::map<std::string, int>;
std::string& to_fail = *new std::string;
int to_fail_in = 0, to_fail_with = 0;

/// A program with violations has failed, whatever its tests say.
struct AtExit {
  ~AtExit() {
    if (told == 0) return;
    std::fprintf(stderr, "host device: %d violations\n", told.load());
    _exit(97);
  }
} at_exit;

void rest() {
  if (kJitter <= 0) return;
  thread_local std::minstd_rand random(
      unsigned(std::hash<std::thread::id>()(std::this_thread::get_id())));
  const auto rest_for = std::chrono::microseconds(random() % std::uint32_t(kJitter + 1));
  if (random() % 4 == 0) std::this_thread::sleep_for(rest_for);
}

void do_work(const Work& work) {
  rest();
  try {
    work.run();
  } catch (const std::exception& error) {
    hostDeviceFault((work.name + ": " + error.what()).c_str());
  }
}

/// A stream's thread.
void work_through(CUstream_st* stream) {
  in_work = true;
  Guard guard(lock);
  for (;;) {
    changed.wait(guard, [&] { return stream->stop || !stream->waiting.empty(); });
    if (stream->waiting.empty()) return;
    Operation now = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    if (now.not_before > Time::now()) {
      guard.unlock();
      std::this_thread::sleep_until(now.not_before);
      guard.lock();
    }
    const auto set = [](const MarkPtr& mark) {
      mark->over = true;
      if (mark->when == Time::time_point{}) mark->when = Time::now();
      mark->older.reset();
      changed.notify_all();
    };
    for (const Step& step : now.steps) {
      if (step.wait) wait_until_over(guard, step.wait);
      if (step.work) {
        guard.unlock();
        do_work(*step.work);
        guard.lock();
      }
      if (step.set) set(step.set);
    }
    set(now.over);
  }
}

}  // namespace

void join(Progress& into, const Progress& from) {
  for (const auto& [stream, at] : from) into[stream] = std::max(into[stream], at);
}

void violation(const char* format, ...) {
  va_list list;
  va_start(list, format);
  std::fprintf(stderr, "host device: VIOLATION: ");
  std::vfprintf(stderr, format, list);
  std::fprintf(stderr, "\n");
  va_end(list);
  ++told;
}

cudaError_t begin_call(const char* name) {
  if (in_work) violation("%s called from a stream's work", name);
  ++counts[name];
  if (to_fail != name || to_fail_in == 0 || --to_fail_in > 0) return cudaSuccess;
  return cudaError_t(to_fail_with);
}

cudaError_t end_call(cudaError_t result) {
  if (result == cudaSuccess) result = sticky;
  if (result != cudaSuccess) last_error = result;
  return result;
}

CUstream_st* new_stream(int device) {
  static std::uint64_t made = 0;
  auto* stream = new_handle<CUstream_st>();
  stream->number = ++made;
  stream->device = device;
  streams.push_back(stream);
  return stream;
}

CUstream_st* stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    static CUstream_st* all[kMostDevices] = {};
    CUstream_st*& legacy = all[current_device];
    if (!legacy) {
      legacy = new_stream(current_device);
      legacy->legacy = true;
    }
    return legacy;
  }
  if (alive(handle)) return handle;
  violation("a stream that is not, or no longer, there: %p", static_cast<void*>(handle));
  return nullptr;
}

void wait_for(Operation& operation, CUstream_st& stream, const MarkPtr& mark) {
  if (!mark) return;
  join(stream.before, mark->before);
  stream.before[mark->stream] = std::max(stream.before[mark->stream], mark->at);
  operation.steps.push_back({.wait = mark});
}

MarkPtr submit(CUstream_st& stream, Operation operation) {
  operation.over->stream = stream.number;
  operation.over->at = ++stream.position;
  operation.over->before = stream.before;
  stream.before[stream.number] = stream.position;
  stream.tail = operation.over;
  if (most_delay > 0)
    operation.not_before = Time::now() + std::chrono::microseconds(std::rand() % most_delay);
  stream.waiting.push_back(std::move(operation));
  if (!stream.thread.joinable()) stream.thread = std::thread(work_through, &stream);
  changed.notify_all();
  return stream.tail;
}

/// A device loads a kernel when it is launched for the first time, which a capture can't wait for.
void load_outside_captures(const CUstream_st& stream, const Work& work) {
  static std::set<std::pair<int, std::string>>& all = *new std::set<std::pair<int, std::string>>;
  if (work.type != cudaGraphNodeTypeKernel) return;
  if (all.emplace(stream.device, work.name).second && stream.capture)
    violation("the first launch of %s is in a capture", work.name.c_str());
}

cudaError_t give(CUstream_st* stream, std::shared_ptr<Work> work) {
  if (!stream) return cudaErrorInvalidResourceHandle;
  load_outside_captures(*stream, *work);
  if (work->type == cudaGraphNodeTypeKernel && stream->device != current_device)
    return cudaErrorInvalidResourceHandle;
  note_memory(*work);
  if (stream->capture) return add_captured(*stream, std::move(work));
  TRY(sticky);
  Operation operation;
  if (work->given) work->given(*stream);
  look_for_races(work, *stream, operation.over);
  operation.steps.push_back({.work = std::move(work)});
  submit(*stream, std::move(operation));
  return cudaSuccess;
}

void wait_until_over(Guard& guard, const MarkPtr& mark) {
  if (mark) changed.wait(guard, [&] { return mark->over; });
}

void wait_for_device(Guard& guard, int device) {
  std::vector<MarkPtr> tails;
  for (const CUstream_st* stream : streams)
    if (stream->device == device) tails.push_back(stream->tail);
  for (const MarkPtr& tail : tails) wait_until_over(guard, tail);
}

}  // namespace host_device

using namespace host_device;

API cudaError_t hostDeviceLaunch(cudaStream_t stream, Work* work) {
  return call("a kernel's launch", [&](Guard&) {
    return give(stream_of(stream), std::make_shared<Work>(std::move(*work)));
  });
}
API void hostDeviceFault(const char* what) {
  violation("a kernel failed: %s", what);
  sticky = cudaErrorLaunchFailure;
}
API void hostDeviceFail(const char* name, int nth, int code) {
  const Guard guard(lock);
  to_fail = name;
  to_fail_in = nth;
  to_fail_with = code;
}
API std::map<std::string, int> hostDeviceCalls() {
  const Guard guard(lock);
  return counts;
}
API int hostDeviceViolations() {
  return told.exchange(0);
}
API void hostDeviceDelay(int microseconds) {
  most_delay = microseconds;
}
API cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = sticky;
  return error;
}
