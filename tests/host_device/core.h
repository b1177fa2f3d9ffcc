// What the host device is made of: marks in time, operations, streams. All state is under one lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/host_device/host_device.h"

#define API extern "C" __attribute__((visibility("default")))
/// A function of the API that does no more than this, and succeeds.
#define SUCCEEDS(Result, name, parameters, ...) \
  API Result name parameters {                  \
    __VA_ARGS__;                                \
    return Result{};                            \
  }

namespace host_device {

using Time = std::chrono::steady_clock;
using Guard = std::unique_lock<std::mutex>;

// ---- Settings, by environment.
long setting(const char* name, long otherwise);
inline const int kDevices = int(setting("HOST_DEVICE_COUNT", 1));
inline const std::size_t kMemory = std::size_t(setting("HOST_DEVICE_MEMORY_MB", 8192)) << 20;
constexpr int kMostDevices = 8;

// ---- What is told.
/// What CUDA forbids or leaves open, and a device would not say.
void violation(const char* format, ...) __attribute__((format(printf, 1, 2)));

// ---- Calls.
extern std::mutex& lock;                  ///< of all state
extern std::condition_variable& changed;  ///< something is over
extern thread_local int current_device;
extern cudaError_t sticky;  ///< what a kernel's failure leaves for good
/// Counts a call; what a test made it fail with, else cudaSuccess. Under the lock.
cudaError_t begin_call(const char* name);
/// Notes what a call returns as this thread's last error.
cudaError_t end_call(cudaError_t result);
/// One CUDA function: `body` gets the lock.
template <class Body>
cudaError_t call(const char* name, const Body& body) {
  Guard guard(lock);
  const cudaError_t failed = begin_call(name);
  return end_call(failed != cudaSuccess ? failed : body(guard));
}

/// A CUDA function that succeeds unless its body returns something else. The body has the lock, by
/// `guard`.
#define CALL(name, parameters, ...)                                        \
  API cudaError_t name parameters {                                        \
    return call(#name, [&]([[maybe_unused]] Guard& guard) -> cudaError_t { \
      __VA_ARGS__                                                          \
      return cudaSuccess;                                                  \
    });                                                                    \
  }

// ---- Handles.
/// Never used again, so that a use of one that is gone is seen; destroying one only marks it.
template <class Handle>
Handle* new_handle() {
  static std::deque<Handle>& all = *new std::deque<Handle>;
  return &all.emplace_back();
}

// ---- Order.
/// How far each stream is known to have come: by its number.
using Progress = std::map<std::uint64_t, std::uint64_t>;

void join(Progress& into, const Progress& from);

/// A moment in a stream's work.
struct Mark {
  bool over = false;
  Time::time_point when{};
  std::uint64_t stream = 0, at = 0;
  Progress before;              ///< what is over by then
  std::shared_ptr<Mark> older;  ///< of a graph's event: what the host may still see
};
using MarkPtr = std::shared_ptr<Mark>;

/// Part of an operation: does work, or waits, or sets a mark.
struct Step {
  std::shared_ptr<Work> work;
  MarkPtr wait, set;
};
struct Operation {
  std::vector<Step> steps;
  MarkPtr over = std::make_shared<Mark>();
  Time::time_point not_before{};
};

constexpr unsigned kAlive = 0xFACEC0DE;

}  // namespace host_device

/// A node of a graph: waits for an event, sets one, does work, or nothing.
struct CUgraphNode_st {
  cudaGraphNodeType type;
  std::vector<std::size_t> after;  ///< numbers of the nodes that it follows
  std::shared_ptr<host_device::Work> work;
  cudaEvent_t event = nullptr;
};

namespace host_device {

using Node = ::CUgraphNode_st;
/// Each node comes after those that it follows.
using Graph = std::deque<Node>;

/// What one stream has captured: each node follows the last.
struct Capture {
  std::uint64_t id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  CUstream_st* stream;
  Graph graph;
  Node* last = nullptr;
  bool invalid = false;
};

}  // namespace host_device

struct CUgraph_st {
  unsigned alive = host_device::kAlive;
  host_device::Graph graph;
};

struct CUstream_st {
  unsigned alive = host_device::kAlive;
  std::uint64_t number = 0;
  int device = 0;
  bool legacy = false, stop = false;
  std::deque<host_device::Operation> waiting;
  std::thread thread;
  host_device::MarkPtr tail;     ///< of the last operation
  host_device::Progress before;  ///< what precedes the next operation
  std::uint64_t position = 0;
  std::shared_ptr<host_device::Capture> capture;
};

struct CUevent_st {
  unsigned alive = host_device::kAlive;
  int device = 0;
  unsigned flags = 0;
  host_device::MarkPtr mark;
};

namespace host_device {

template <class Handle>
bool alive(const Handle* handle) {
  return handle && handle->alive == kAlive;
}
/// The same, for what is done to it: a violation if not.
template <class Handle>
bool there(const Handle* handle, const char* what) {
  if (!alive(handle)) violation("%s of what is not, or no longer, there", what);
  return alive(handle);
}

extern std::vector<CUstream_st*>& streams;  ///< destroyed ones, too
extern int graphs_held, executables_held;
CUstream_st* new_stream(int device);
/// The stream of a handle, the legacy one of a null; null, and a violation, if there is none.
CUstream_st* stream_of(cudaStream_t handle);

void wait_for(Operation& operation, CUstream_st& stream, const MarkPtr& mark);
/// Ends the operation and gives it to the stream.
MarkPtr submit(CUstream_st& stream, Operation operation);
/// Work for a stream, or for the graph that it captures.
cudaError_t give(CUstream_st* stream, std::shared_ptr<Work> work);
void wait_until_over(Guard& guard, const MarkPtr& mark);
void wait_for_device(Guard& guard, int device);

// ---- Memory.
bool is_device_address(const void* address);
void map_devices();
/// Says which allocations work uses; a violation where it reaches beyond them.
void note_memory(Work& work);
/// A violation where one of them is gone.
void require_memory(const Work& work);
/// A violation where work meets other work that is under way in no order.
void look_for_races(const std::shared_ptr<Work>& work, CUstream_st& stream, const MarkPtr& over);
bool overlap(const Range& a, const Range& b);

// ---- Capture.
/// For calls that may be unsafe while something is captured.
cudaError_t unsafe();
/// A node of the graph that the stream captures.
cudaError_t add_captured(CUstream_st& stream, std::shared_ptr<Work> work);
/// For calls that a stream under capture must not be in.
cudaError_t refuse_captured(CUstream_st& stream);
int captures_under_way();
cudaGraph_t new_graph(Graph graph);

#define TRY(...)                             \
  do {                                       \
    const cudaError_t tried = (__VA_ARGS__); \
    if (tried != cudaSuccess) return tried;  \
  } while (0)

}  // namespace host_device
