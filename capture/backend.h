// What a recorded step asks of a device: record a body once, launch it again and again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "capture/operation_info.h"

namespace millrace::capture {

/// A mark in a backend's work that other backends wait for, on their device. Made by one backend,
/// which alone signals it. A wait is for the signal launched last; the launch that waits comes
/// after that launch in the program, and so does the next signal after everything that waits
/// (tokens and slots see to it).
class Event {
 public:
  virtual ~Event() = default;
};

/// Recorded work at fixed addresses. It can't run alone: see Backend::assemble().
class Recording {
 public:
  virtual ~Recording() = default;
  /// What a step program consists of; empty for any other recording.
  virtual std::vector<OperationInfo> operations() const { return {}; }
};

/// A recording in a graph, with what it waits for and what it signals when it is over; null:
/// nothing.
struct GraphNode {
  const Recording* recording = nullptr;
  Event* wait = nullptr;
  Event* signal = nullptr;
  /// Nothing later in the graph waits for it; the graph's end does. It waits and signals nothing,
  /// and takes no memory of its pool, which later recordings would use at the same time.
  bool aside = false;
};

/// Recordings one after another, launched as one. Made by a backend, and launched there.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Its work comes after all that the backend was given before. Returns at once if the backend
  /// defers, else when the work is done.
  virtual void launch() = 0;
  /// Whether the last launch is over.
  virtual bool over() { return true; }
  /// How long the recordings of the last launch took, without what they waited for; it must be
  /// over. Asked of a backend that defers; elsewhere the caller's clock tells.
  virtual std::int64_t duration_ns() { return 0; }
};

/// Runs one stage's work on its device, which is over before it goes. There are four: eager (on a
/// core or CUDA), CUDA Graph, step program on a core, and the tests' double of a device.
/// Thread-bound once recording is over; until then, one thread may record for all backends.
class Backend {
 public:
  virtual ~Backend() = default;

  /// False: eager. Only run(), copy() and synchronize() are called then, and a body may read
  /// results on the host, hand tensors over and allocate.
  virtual bool records() const { return true; }
  /// Whether launch() and run() return before their work is done. If not, no event is ever made,
  /// each recording is launched by itself when it is called, and run() returns when done.
  virtual bool defers() const { return true; }

  virtual std::unique_ptr<Event> make_event() = 0;
  /// Runs `body` once to warm up, after all work that the device was given, and records it. What it
  /// leaves alive (activations, results) keeps its address; recordings of one `pool` may share the
  /// memory that is free between them, so they run in the order of recording. A body calls LibTorch
  /// operators, torch::autograd::grad() and copy() alone, and reads no result on the host. Throws
  /// std::exception (c10::Error is no std::runtime_error) for work that can't be recorded, and may
  /// be used again after that.
  virtual std::unique_ptr<Recording> record(int pool, std::function<void()> body) = 0;
  virtual std::unique_ptr<Graph> assemble(const std::vector<GraphNode>& nodes) = 0;
  /// Work that is not recorded, after all that was given before.
  virtual void run(std::function<void()> body) = 0;
  /// Within a body: copies bytes between any two places, host (pinned), this device or a peer.
  virtual void copy(at::Tensor& to, const at::Tensor& from) = 0;
  /// Has the calling thread wait for all work given so far.
  virtual void synchronize() = 0;
};

/// What a body came to.
class LoweredBody {
 public:
  virtual ~LoweredBody() = default;
  virtual void run() = 0;
  virtual std::vector<OperationInfo> operations() const = 0;
};
using Lowering = std::function<std::unique_ptr<LoweredBody>(const std::function<void()>& body)>;

/// A core or a CUDA device; the latter on a stream of its own, each body waited for. Throws
/// std::invalid_argument for a device that this build can't use.
std::unique_ptr<Backend> make_eager_backend(c10::Device device);
/// A backend that records on the whole device. Throws std::invalid_argument for a device that this
/// build can't record on.
/// \param lowering makes of each body what is recorded in its place; empty: nothing. A body does
///   nothing then that is no LibTorch operator, copy() apart.
std::unique_ptr<Backend> make_graph_backend(c10::Device device, Lowering lowering = {});
/// Whether `device` can copy from `other`'s memory.
bool reads(c10::Device device, c10::Device other);
/// Zeros on the host that a device can copy from and to by itself; plain memory where no CUDA
/// device is.
at::Tensor pinned_zeros(at::IntArrayRef sizes, at::ScalarType type = at::kFloat);

}  // namespace millrace::capture
