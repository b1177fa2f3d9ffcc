// Operations of a step program, before they are prepared and after.
#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "capture/program/kernels/kernels.h"
#include "capture/program/program.h"
#include "capture/program/values.h"

namespace millrace::program {

class Prepared;
struct Node;

/// What a node computes, without its tensors, and how it is prepared; each from operations/.
struct Operation {
  std::string name;  ///< in reports: "group norm 8x16x24 gradient"

  // What fusion must know.
  bool constant = false;  ///< its results are always the same
  bool copy = false;      ///< its result is its operand, in any layout
  bool in_place = false;  ///< its results cannot move
  bool update = false;    ///< of weights: it is never dead; its operand 1 is the gradient
  /// Applies the function to its first result from now on, if it can. `right`: the function's other
  /// operand; undefined: none. Null: it never can.
  std::function<bool(Node& node, kernels::Function function, const at::Tensor& right)> take_over;

  /// For a team of that many threads.
  using OnCores = std::function<std::unique_ptr<Prepared>(const Node& node, int threads)>;
  /// Launches on the current stream without waiting. Compiles kernels that are new.
  using OnGpu = std::function<std::unique_ptr<Prepared>(const Node& node)>;
  OnCores on_cores;
  OnGpu on_gpu;

  std::any attributes;  ///< that others see
};

/// An operation, its operands and its results; any may be undefined where its file says so.
struct Node {
  Operation operation;
  std::vector<at::Tensor> reads, writes;
};

inline bool is_erased(const Node& node) {
  return node.operation.name.empty();
}

/// A map's attributes; null for other operations.
inline const kernels::Map* as_map(const Node& node) {
  return std::any_cast<kernels::Map>(&node.operation.attributes);
}

/// Layout of pictures in kernels: channels last on a core, planes on a GPU.
at::MemoryFormat image_format(c10::Device device);
/// Whether it is one float32 picture, [1,C,H,W], contiguous in that format.
bool is_image(const at::Tensor& tensor);
kernels::Layout layout_of(const at::Tensor& tensor);
/// Whether it is float32 on a core or a GPU and non-overlapping and dense.
bool is_dense(const at::Tensor& tensor);

/// Whether both name the same elements, in layouts that kernels take for the same.
bool same_memory(const at::Tensor& a, const at::Tensor& b);

/// Whether two float32 tensors are dense and have their elements in the same order.
bool lie_alike(const at::Tensor& a, const at::Tensor& b);

/// Dimensions of more than one element, by stride, the largest first.
std::vector<std::int64_t> by_stride(const at::Tensor& tensor);

/// Lowers calls to our kernels, or else to LibTorch's operators.
std::vector<Node> translate(const std::vector<Call>& calls, Values& values, bool on_gpu);

/// Fuses activations, ReLU masks, copies and sums into their producers; removes dead nodes. Links
/// the values with the nodes that are left.
void fuse(std::vector<Node>& nodes, Values& values);

/// For a core or a GPU: which gradients of convolutions are computed together, and which wait for
/// the update. Links the values anew.
void arrange(std::vector<Node>& nodes, Values& values, bool on_gpu, const ProgramOptions& options);

/// One of LateGradients. Its inputs are copied aside.
class LateGradient {
 public:
  virtual ~LateGradient() = default;
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
  /// Lets an update's next run compute these gradients, which outlive that run and need not be at
  /// place(). Returns false, without effect, if it can't.
  virtual bool take(std::span<LateGradient* const> gradients) { return false; }
  capture::OperationInfo info;
};

/// "8x16x24".
std::string text_of(const kernels::Layout& layout);

inline float* floats(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<float*>(tensor.data_ptr()) : nullptr;
}

/// Points at the floats of the first tensors, in order.
template <class... Floats>
void point_at(const std::vector<at::Tensor>& tensors, Floats*&... pointers) {
  auto next = tensors.begin();
  ((pointers = floats(*next++)), ...);
}

/// Calls run(arguments), run(arguments, share) or run(arguments, phase, share), whichever there is,
/// with the arguments that `bind(node, scratch)` gives.
template <class Bind, class Run>
class CoreCall final : public Prepared {
 public:
  CoreCall(const Bind& bind, const Run& run, std::vector<bool> phases, std::size_t scratch_bytes)
      : bind_(bind), run_(run), phases_(std::move(phases)), scratch_bytes_(scratch_bytes) {
    info.kernel = kernels::instruction_set();
  }
  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  std::vector<bool> phases() const override { return phases_; }
  void bind(const Node& node, char* scratch) override { arguments_ = bind_(node, scratch); }
  void run(int phase, kernels::Share share) override {
    if constexpr (std::is_invocable_v<const Run&, const Arguments&>) {
      run_(arguments_);
    } else if constexpr (std::is_invocable_v<const Run&, const Arguments&, kernels::Share>) {
      run_(arguments_, share);
    } else {
      run_(arguments_, phase, share);
    }
  }

 private:
  using Arguments = std::invoke_result_t<Bind, const Node&, char*>;
  const Bind bind_;
  const Run run_;
  const std::vector<bool> phases_;
  const std::size_t scratch_bytes_;
  Arguments arguments_;
};
template <class Bind, class Run>
Operation::OnCores core_call(Bind bind, Run run, const std::vector<bool>& phases,
                             std::size_t scratch_bytes = 0) {
  return [=](const Node&, int) {
    return std::make_unique<CoreCall<Bind, Run>>(bind, run, phases, scratch_bytes);
  };
}
/// Calls run(arguments, share) on all of a team.
template <class Bind, class Run>
Operation::OnCores by_team(Bind bind, Run run) {
  return core_call(bind, run, {true});
}
/// Calls run(arguments) on the first thread alone.
template <class Bind, class Run>
Operation::OnCores by_one(Bind bind, Run run) {
  return core_call(bind, run, {false});
}
/// A node's first operand and result.
struct Ends {
  const float* from;
  float* to;
};
inline Ends ends(const Node& node, char*) {
  return {node.reads.empty() ? nullptr : floats(node.reads[0]), floats(node.writes[0])};
}

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
