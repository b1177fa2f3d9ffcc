// NCCL transfers between GPUs of two processes, without the host.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace millrace::capture {

struct BoundaryBuffers;

/// UUID of a GPU.
using GpuId = std::array<char, 16>;
/// The GPUs that CUDA numbers 0, 1, ... here. Empty in a build without wires.
std::vector<GpuId> gpus_here();

/// One end of a direction across a cut whose other end is in another process, on another GPU. Each
/// slot's transfer is recorded once, on the wire's own stream: on a stage's stream, a send would
/// hold up work that its receiver waits for. The sender waits for the slot's `ready`; the receiver
/// signals it on arrival. The n-th move() here matches the n-th there. Not thread-safe.
class Wire {
 public:
  /// Both ends must have called connect(), or neither, and move() equally often.
  virtual ~Wire() = default;
  /// Called on both ends at once, with a new_wire_name() of one of them: waits for the other, and
  /// records. Leaves meaningless numbers in the receiver's tensors. Throws std::runtime_error.
  virtual void connect(const std::string& name) = 0;
  /// Sends the slot's tensors or receives into them. Returns at once.
  virtual void move(int slot) = 0;
  virtual std::int64_t moves() const = 0;
  /// Aborts transfers in flight; later moves do nothing.
  virtual void cut() = 0;
};

/// For a direction whose local tensors are on `device`; the receiving end creates its events.
std::unique_ptr<Wire> make_wire(c10::Device device, BoundaryBuffers& way, bool sends);
std::string new_wire_name();

/// These functions as the module for GPUs exports them.
struct CudaWires {
  std::vector<GpuId> (*gpus_here)();
  std::unique_ptr<Wire> (*make_wire)(c10::Device device, BoundaryBuffers& way, bool sends);
  std::string (*new_wire_name)();
};
extern "C" const CudaWires millrace_cuda_wires;  ///< in the module, if it was built with NCCL

}  // namespace millrace::capture
