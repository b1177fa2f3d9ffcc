// What operations of a step program are prepared with.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "capture/program/node.h"
#include "capture/program/program.h"

namespace millrace::program {

/// A large weight gradient that may wait for the update, which computes it part by part without
/// memory for the whole. Its inputs are copied aside until then.
class LateGradient {
 public:
  virtual ~LateGradient() = default;
  /// Copies its inputs aside. Call on one thread.
  virtual void keep() = 0;
  /// Where make() writes it without a taker.
  virtual std::span<float> place() const = 0;
  /// Whether it is finite by a bound on its sums; false may be wrong.
  virtual bool surely_finite() const = 0;
  /// A thread's memory for make(), which the next gradient of the program may share.
  virtual std::span<float> scratch(int thread) const = 0;
  /// Computes one thread's share for `taker`, or into place() if null.
  virtual void make(const kernels::GradientTaker* taker, kernels::Share share,
                    float* scratch) const = 0;
};

/// A prepared node, bound to its memory once the whole program is known.
class Prepared {
 public:
  virtual ~Prepared() = default;
  virtual std::size_t scratch_bytes() const { return 0; }
  /// Takes over the current addresses of `node`'s tensors.
  virtual void bind(const Node& node, char* scratch) = 0;
  /// Phases in order: whether the team shares one, or its first thread runs it alone.
  virtual std::vector<bool> phases() const { return {false}; }
  virtual void run(int phase, kernels::Share share) = 0;
  /// The gradient that may be computed later instead of by run(); null: none.
  virtual LateGradient* late() { return nullptr; }
  /// Lets an update's next run compute these gradients, which outlive that run and need not be at
  /// place(). Returns false, without effect, if it can't.
  virtual bool take(std::span<LateGradient* const> gradients) { return false; }
  capture::OperationInfo info;
};

/// For the device of the node's tensors.
std::unique_ptr<Prepared> prepare(const Node& node, int threads);

/// "8x16x24".
std::string text_of(const kernels::Layout& layout);

inline float* floats(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<float*>(tensor.data_ptr()) : nullptr;
}

/// Addresses of a node's operands and results, null beyond their number.
struct Addresses {
  std::array<float*, 3> reads{}, writes{};
};
using KernelCall = std::function<void(const Addresses& at, kernels::Share share)>;

/// A call that the team shares.
Operation::OnCores by_team(KernelCall call);
/// A call that the first thread runs alone.
Operation::OnCores by_one(KernelCall call);

// ---- On a GPU.

struct GpuKernel {
  std::string expression;
  int threads, blocks;
  std::size_t shared_floats = 0;
};
/// Gives the kernels' arguments: addresses and counts.
using GpuBind = std::function<std::shared_ptr<void>(const Node& node, char* scratch)>;
std::unique_ptr<Prepared> prepare_gpu_call(const std::vector<GpuKernel>& kernels, GpuBind bind,
                                           std::size_t scratch_bytes);

/// Launches of kernels in sequence with the same arguments: bind(node, scratch).
template <class Bind>
Operation::OnGpu gpu_call(const std::vector<GpuKernel>& kernels, const Bind& bind,
                          std::size_t scratch_bytes = 0) {
  using Arguments = std::invoke_result_t<Bind, const Node&, char*>;
  const auto made = [bind](const Node& n, char* scratch) {
    return std::make_shared<Arguments>(bind(n, scratch));
  };
  return [=](const Node&) { return prepare_gpu_call(kernels, made, scratch_bytes); };
}
/// `function` of up to two operands, broadcast: a kernel's template argument.
Operation::OnGpu gpu_map(const std::string& function, const kernels::Map& map = {});

/// "1, 2": template arguments.
template <class... Numbers>
std::string numbers(const Numbers&... all) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + std::to_string(all)), ...);
  return text;
}
/// Whether its floats can be read in aligned fours.
inline bool holds_fours(const float* first) {
  return reinterpret_cast<std::uintptr_t>(first) % 16 == 0;
}

}  // namespace millrace::program
