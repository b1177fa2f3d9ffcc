// From a GPU to another process's GPU, without the host between them: NCCL.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace millrace::capture {

struct BoundaryBuffers;

/// Which GPU of all that there are: its UUID.
using GpuId = std::array<char, 16>;
/// Of those that CUDA numbers 0, 1, ... here. Empty where this build has no wires.
std::vector<GpuId> gpus_here();

/// One end of a way over a cut, whose other end is in another process on another GPU. Each slot's
/// transfer is recorded once, on a stream of the wire's own: in a stage's stream a send would hold
/// up what its receiver waits for. It sends when the writer has signalled the slot's `ready`; the
/// receiving end signals it when the tensors have come. The n-th move() here goes with the n-th
/// there. Not thread-safe.
class Wire {
 public:
  /// Both ends are to have called connect(), or neither, and to have moved as often.
  virtual ~Wire() = default;
  /// By both ends at once, with a name that one of them made: waits for the other, and records.
  /// Leaves numbers of no meaning in the receiver's tensors. Throws std::runtime_error.
  virtual void connect(const std::string& name) = 0;
  /// Sends what lies in `slot`, or receives into it. Returns at once.
  virtual void move(int slot) = 0;
  virtual std::int64_t moves() const = 0;
  /// Gives up what is under way: nobody waits for it any longer, and later moves do nothing.
  virtual void cut() = 0;
};

/// Of a way whose tensors here lie on `device`; a wire that receives makes its events.
std::unique_ptr<Wire> make_wire(c10::Device device, BoundaryBuffers& way, bool sends);
/// Another one each time.
std::string new_wire_name();

}  // namespace millrace::capture
