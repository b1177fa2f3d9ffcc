#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "capture/program/node.h"
#include "capture/program/program.h"
#include "stages/guarded_update.h"

namespace millrace::program {

/// A large weight gradient that may wait for the update, which computes it part by part without
/// memory for the whole. Its inputs are kept aside until then.
class LateGradient {
 public:
  virtual ~LateGradient() = default;
  /// Keeps its inputs aside. Call on one thread.
  virtual void keep() = 0;
  /// Where make() leaves it without a taker.
  virtual std::span<float> place() const = 0;
  /// Whether it is finite by a bound on its sums; false may be wrong.
  virtual bool surely_finite() const = 0;
  /// A thread's memory for make(), which the next gradient of the program may share.
  virtual std::span<float> scratch(int thread) const = 0;
  /// Computes one thread's share for `taker`, or into place() if null.
  virtual void make(const kernels::GradientTaker* taker, kernels::Share share,
                    float* scratch) const = 0;
};

/// A prepared call, bound to its memory once the whole program is known.
class Prepared {
 public:
  virtual ~Prepared() = default;
  virtual std::size_t scratch_bytes() const { return 0; }
  /// Takes over the current addresses of `node`'s tensors.
  virtual void bind(const Node& node, char* scratch) = 0;
  /// Its phases in order: whether the team shares one, or its first thread runs it alone.
  virtual std::vector<bool> phases() const { return {false}; }
  virtual void run(int phase, kernels::Share share) = 0;
  /// What may be kept instead of run() and computed later; null: nothing.
  virtual LateGradient* late() { return nullptr; }
  /// Of an update: lets its next run compute these gradients, which outlive that run and needn't be
  /// in place. Returns false, without effect, if it can't.
  virtual bool take(std::span<LateGradient* const> gradients) { return false; }
  capture::OperationInfo info;
};

/// "8x16x24".
std::string text_of(const kernels::Layout& layout);
/// "group norm 8x16x24 gradient".
std::string name_of(const Node& node);
/// "forward 16x64x64 -> 16x64x64 k5 s1 relu".
std::string describe(const kernels::Convolution& convolution);

inline float* floats(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<float*>(tensor.data_ptr()) : nullptr;
}

/// Sets the addresses of a norm's operands, for a core or a GPU.
template <class Operands>
void bind_norm(const Node& node, Operands& made) {
  const std::vector<at::Tensor>&reads = node.reads, &writes = node.writes;
  made.destination = floats(writes[0]);
  if (node.gradient) {
    made.gradient = floats(reads[0]);
    made.source = floats(reads[1]);
    made.mean = floats(reads[2]);
    made.rstd = floats(reads[3]);
    made.weight = floats(reads[4]);
    made.weight_gradient = floats(writes[1]);
    made.bias_gradient = floats(writes[2]);
  } else {
    made.source = floats(reads[0]);
    made.weight = floats(reads[1]);
    made.bias = floats(reads[2]);
    made.mean = floats(node.norm.frozen ? reads[3] : writes[1]);
    made.rstd = floats(node.norm.frozen ? reads[4] : writes[2]);
  }
}

stages::UpdateNumbers numbers_of_update(const Node& node);

/// Sets the addresses of an update's operands, for a core or a GPU.
template <class Operands>
void bind_update(const Node& node, const stages::UpdateNumbers& numbers, Operands& made) {
  const at::Tensor& given = node.reads[3];
  const auto state = node.writes.begin() + 3;
  const auto memory = state + std::ptrdiff_t(node.call->arguments[3].toTensorVector().size());
  made.from = floats(node.reads[0]);
  made.gradient = floats(node.reads[1]);
  made.to = floats(node.writes[2]);
  made.state = stages::state_of(numbers, {state, memory});
  made.memory = stages::memory_of(numbers.correction.rule, {memory, node.writes.end()});
  made.rate = static_cast<const double*>(node.reads[2].const_data_ptr());
  made.given = given.defined() ? static_cast<const bool*>(given.const_data_ptr()) : nullptr;
  made.finite = static_cast<bool*>(node.writes[0].data_ptr());
  made.skipped = floats(node.writes[1]);
}

/// For a team of that many threads. A LibTorch operator copies what it needs of its call.
/// \param may_wait nothing else in the program reads or writes the weight gradient it makes.
std::unique_ptr<Prepared> prepare(const Node& node, int threads, bool may_wait = false);

// On a GPU.

/// As prepare(): launches on the current stream without waiting. Compiles kernels that are new.
std::unique_ptr<Prepared> prepare_on_gpu(const Node& node);

/// Gathers a program's weight gradients, and marks weights that no earlier node writes.
void arrange_for_gpu(std::vector<Node>& nodes);

/// The kernels that can run a convolution, or its weight gradient alone, on the current device, the
/// one chosen by shape first, and the task for gpu::choose().
struct KernelChoice {
  std::string task;
  std::vector<std::string> names;
};
KernelChoice kernel_choice(const kernels::Convolution& convolution);

}  // namespace millrace::program
