// The interface to a device: record a body once, launch it again and again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace millrace::capture {

inline constexpr const char* kLibTorch = "LibTorch";  ///< a kernel that isn't ours

struct OperationInfo {
  std::string name;    ///< "forward 16x64x64 -> 16x64x64 k5 s1 relu" or "aten::native_group_norm"
  std::string kernel;  ///< implementation; kLibTorch where we have none
  double flops = 0;    ///< per run; 0: not counted
  double bytes = 0;    ///< read and written, each once
  std::int64_t best_ns = 0;  ///< of the timed runs; 0: none
};

/// A mark in a backend's work that other backends wait for on their devices. Only the backend that
/// created it signals it. A wait refers to the signal launched last: the waiting launch follows it
/// in program order, and the next signal follows every such wait (tokens and slots ensure both).
class Event {
 public:
  virtual ~Event() = default;
};

/// Recorded work at fixed addresses; it runs only as part of a Graph, see Backend::assemble().
class Recording {
 public:
  virtual ~Recording() = default;
  /// Operations of a step program; empty for any other recording.
  std::vector<OperationInfo> operations;
};

/// A recording in a graph, the event it waits for and the event it signals at its end; null: none.
struct GraphNode {
  const Recording* recording = nullptr;
  Event* wait = nullptr;
  Event* signal = nullptr;
  /// Runs beside the rest of the graph: only the graph's end waits for it. It has no events and
  /// allocates nothing from its pool, whose memory later recordings use at the same time.
  bool aside = false;
};

/// Recordings in sequence, launched as one on the backend that made it.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Runs after all previously queued work. Returns at once if the backend defers, else when done.
  virtual void launch() = 0;
  /// launch() without timing, which takes time on some devices. Leaves duration_ns() unchanged.
  virtual void launch_untimed() { launch(); }
  virtual bool over() { return true; }
  /// Time the recordings of the latest timed launch took, waits excluded; the last launch must be
  /// over. Only for backends that defer: elsewhere the caller's clock measures it.
  virtual std::int64_t duration_ns() { return 0; }
};

/// Runs one stage's work on its device; destroy it only when the work is done. Implementations:
/// eager (core or CUDA), CUDA Graph, step program on a core, and the tests' fake device.
/// Thread-bound after recording; until then, one thread may record for all backends.
class Backend {
 public:
  virtual ~Backend() = default;

  /// False: eager. Then only run(), copy() and synchronize() are called, and a body may read
  /// results on the host, hand tensors over and allocate.
  virtual bool records() const { return true; }
  /// Whether launch() and run() return before their work is done. If not, no events are made, each
  /// recording is launched by itself when called, and run() returns when done.
  virtual bool defers() const { return true; }

  virtual std::unique_ptr<Event> make_event() = 0;
  /// Runs `body` once to warm up, after all previously queued work, and records it. What it leaves
  /// alive (activations, results) keeps its address; recordings of one `pool` may share the memory
  /// that is free between them, so they run in the order of recording. A body calls only LibTorch
  /// operators, torch::autograd::grad() and copy(), and reads no result on the host. Throws
  /// std::exception (c10::Error is no std::runtime_error) and stays usable if recording fails.
  virtual std::unique_ptr<Recording> record(int pool, std::function<void()> body) = 0;
  virtual std::unique_ptr<Graph> assemble(const std::vector<GraphNode>& nodes) = 0;
  /// Runs `body` unrecorded, after all previously queued work.
  virtual void run(std::function<void()> body) = 0;
  /// Within a body: copies between any of host (pinned), this device and its peers.
  virtual void copy(at::Tensor& to, const at::Tensor& from) = 0;
  virtual void synchronize() = 0;
  /// Memory on a core that recordings share.
  virtual std::int64_t scratch_bytes() const { return 0; }
};

struct LoweredBody {
  std::function<void()> run;  ///< owns the memory that it works on
  std::vector<OperationInfo> operations;
};
using Lowering = std::function<LoweredBody(const std::function<void()>& body)>;

/// For a core, or a CUDA device, where it has its own stream and run() blocks until the work is
/// done. Throws std::invalid_argument for a device that this build can't use.
std::unique_ptr<Backend> make_eager_backend(c10::Device device);
/// For a CUDA device. Throws std::invalid_argument for a device that this build can't record on.
/// \param lowering makes of each body what is recorded instead; empty: the body itself. A body then
///   has no effect except through LibTorch operators and copy().
std::unique_ptr<Backend> make_graph_backend(c10::Device device, Lowering lowering = {});
/// Whether `device` can read `other`'s memory directly.
bool reads(c10::Device device, c10::Device other);
/// Zeros in pinned host memory, or in plain memory without a CUDA device.
at::Tensor pinned_zeros(at::IntArrayRef sizes, at::ScalarType type = at::kFloat);
/// `pinned`'s memory as kernels of `device` address it; `pinned` outlives it. For rarely used data.
at::Tensor seen_by(c10::Device device, const at::Tensor& pinned);

}  // namespace millrace::capture
