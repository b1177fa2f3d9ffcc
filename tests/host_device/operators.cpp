// LibTorch's operators on the host device: shapes from a trial on zeros, memory from the real CUDA
// allocator, and work that does the operator's CPU version on the same bytes. Work holds addresses
// only, as a kernel does.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Copy.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <cstring>
#include <set>

#include "tests/host_device/host_device.h"

namespace {

using c10::IValue;
using Stack = torch::jit::Stack;
using Operator = c10::OperatorHandle;

/// Whether the host reads the result: then the stream is waited for. (An operator whose result's
/// shape depends on data fails.)
bool needs_data(const Operator& op) {
  for (const c10::Argument& made : op.schema().returns()) {
    const c10::TypeKind kind = made.type()->kind();
    if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) return true;
  }
  return false;
}

/// `value` with `change` applied to each tensor in it.
template <class Change>
IValue each(const IValue& value, const Change& change) {
  if (value.isTensor())
    return value.toTensor().defined() ? IValue(change(value.toTensor())) : value;
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& t : value.toTensorVector()) list.push_back(t.defined() ? change(t) : t);
  return list;
}

/// What stands for an argument on a core, tensors left out.
IValue on_core(const IValue& value, const c10::Argument& argument) {
  static auto* const generator =
      new at::Generator(at::make_generator<at::CPUGeneratorImpl>(std::uint64_t(1)));
  if (value.isDevice()) return c10::Device(c10::kCPU);
  if (value.isGenerator() || (value.isNone() && argument.type()->str() == "Generator?"))
    return *generator;
  return argument.name() == "pin_memory" ? IValue() : value;
}

std::size_t extent(const at::Tensor& t) {
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  return t.numel() == 0 ? 0 : std::size_t(last + 1) * t.itemsize();
}

/// The same bytes as a tensor of a core; holds nothing.
at::Tensor bytes_of(const at::Tensor& t) {
  const auto options = t.options().device(at::kCPU).requires_grad(false);
  if (t.numel() == 0) return at::empty_strided(t.sizes(), t.strides(), options);
  return at::from_blob(hostDeviceReach(t.const_data_ptr()), t.sizes(), t.strides(), options);
}

at::Tensor zeros_as(const at::Tensor& t) {
  at::Tensor made = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU));
  if (made.numel() > 0) std::memset(made.mutable_data_ptr(), 0, extent(made));
  return made;
}

/// A number on the host as it is now: a kernel takes it by value.
at::Tensor number_now(const at::Tensor& t) {
  at::Tensor copy = t.clone();
  copy.unsafeGetTensorImpl()->set_wrapped_number(t.unsafeGetTensorImpl()->is_wrapped_number());
  return copy;
}

/// The device that all arguments lie on, else the one that is asked for, else the current one.
c10::Device device_of(const Operator& op, const Stack& given) {
  std::optional<c10::Device> asked, found;
  for (const IValue& value : given) {
    if (value.isDevice() && value.toDevice().is_cuda()) asked = value.toDevice();
    each(value, [&](const at::Tensor& t) {
      TORCH_CHECK(t.is_cuda() ? !found || t.device() == *found : t.dim() == 0,
                  "Expected all tensors to be on the same device, but not so for ",
                  op.schema().name());
      if (t.is_cuda()) found = t.device();
      return t;
    });
  }
  const c10::Device device = found.value_or(asked.value_or(c10::Device(c10::kCUDA)));
  return device.has_index() ? device : c10::Device(c10::kCUDA, c10::cuda::current_device());
}

/// One call of an operator.
class Play {
 public:
  Play(const Operator& op, Stack given)
      : op_(op), schema_(op.schema()), given_(std::move(given)), device_(device_of(op, given_)) {}

  Stack run() {
    const c10::cuda::CUDAGuard on_device(device_);
    const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
    const bool now = needs_data(op_);
    if (now) stream.synchronize();
    const Stack trial = arguments([&](const at::Tensor& t) {
      return t.is_cuda() ? now ? bytes_of(t) : zeros_as(t) : number_now(t);
    });
    Stack results = trial;
    op_.callBoxed(results);
    resize_outputs(trial);
    work_.name = schema_.name();
    const at::Tensor scratch = take_scratch();
    const Stack here =
        arguments([&](const at::Tensor& t) { return t.is_cuda() ? bytes_of(t) : number_now(t); });
    note_ranges();
    Stack returned = make_results(results);
    work_.run = [op = op_, here, made = std::move(made_), spoil = std::move(spoil_)] {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      spoil();
      Stack there = here;
      op.callBoxed(there);
      for (std::size_t r = 0; r < made.size(); ++r) {
        std::size_t next = 0;
        if (made[r].empty()) continue;
        each(there[r], [&](const at::Tensor& t) {
          TORCH_CHECK(made[r][next].sizes() == t.sizes(), "another shape than on zeros");
          at::Tensor(made[r][next++]).copy_(t);
          return t;
        });
      }
    };
    C10_CUDA_CHECK(hostDeviceLaunch(stream.stream(), &work_));
    C10_CUDA_CHECK(cudaGetLastError());  // as after each launch of LibTorch's
    return returned;
  }

 private:
  template <class Change>
  Stack arguments(const Change& change) const {
    Stack changed;
    for (std::size_t i = 0; i < given_.size(); ++i)
      changed.push_back(each(on_core(given_[i], schema_.arguments()[i]), change));
    return changed;
  }
  bool writes(std::size_t argument) const {
    const auto* alias = schema_.arguments()[argument].alias_info();
    return alias && alias->isWrite();
  }
  /// Outputs that were given take the size that the operator gave its own.
  void resize_outputs(const Stack& trial) const {
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (!writes(i) || !given_[i].isTensor() || !given_[i].toTensor().defined()) continue;
      const at::Tensor made = trial[i].toTensor(), real = given_[i].toTensor();
      if (!real.is_cuda() || made.sizes() == real.sizes()) continue;
      real.resize_(made.sizes());
      if (made.strides() != real.strides()) real.as_strided_(made.sizes(), made.strides());
    }
  }
  /// Memory that cuDNN and cuBLAS would take meanwhile, and leave spoiled.
  at::Tensor take_scratch() {
    const bool takes =
        work_.name.find("conv") != std::string::npos || work_.name.find("mm") != std::string::npos;
    spoil_ = [] {};
    if (!takes) return {};
    at::Tensor scratch = at::empty({1 << 16}, at::TensorOptions(device_).dtype(at::kByte));
    work_.ranges.push_back({scratch.mutable_data_ptr(), scratch.nbytes(), true});
    spoil_ = [at = hostDeviceReach(scratch.mutable_data_ptr())] { std::memset(at, 0xFF, 1 << 16); };
    return scratch;
  }
  void note_ranges() {
    for (std::size_t i = 0; i < given_.size(); ++i) {
      each(given_[i], [&](const at::Tensor& t) {
        if (t.is_cuda() && t.numel() > 0)
          work_.ranges.push_back({t.const_data_ptr(), extent(t), writes(i)});
        return t;
      });
    }
  }
  /// What is returned: arguments that were written, and new tensors, whose bytes made_ keeps.
  Stack make_results(const Stack& results) {
    Stack returned;
    made_.resize(results.size());
    for (std::size_t r = 0; r < results.size(); ++r) {
      const auto* alias = schema_.returns()[r].alias_info();
      if (alias && alias->isWrite()) {
        for (std::size_t i = 0; i < given_.size(); ++i) {
          const auto* other = schema_.arguments()[i].alias_info();
          if (other && *other == *alias) returned.push_back(given_[i]);
        }
        continue;
      }
      returned.push_back(each(results[r], [&](const at::Tensor& t) {
        at::Tensor made = at::empty_strided(t.sizes(), t.strides(), t.options().device(device_));
        if (made.numel() > 0) work_.ranges.push_back({made.const_data_ptr(), extent(made), true});
        made_[r].push_back(bytes_of(made));
        return made;
      }));
    }
    return returned;
  }

  const Operator& op_;
  const c10::FunctionSchema& schema_;
  Stack given_;
  c10::Device device_;
  host_device::Work work_;
  std::function<void()> spoil_;
  std::vector<std::vector<at::Tensor>> made_;  ///< by result
};

void play(const Operator& op, c10::DispatchKeySet, Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto count = std::ptrdiff_t(op.schema().arguments().size());
  Stack returned = Play(op, Stack(stack->end() - count, stack->end())).run();
  torch::jit::drop(*stack, std::size_t(count));
  for (IValue& value : returned) stack->push_back(std::move(value));
}

/// To and from a device as LibTorch does it, by cudaMemcpyAsync; within one as a kernel.
at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  static const Operator op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  if (!self.is_cuda() || self.device() != from.device())
    return at::native::copy_(self, from, non_blocking);
  Stack stack = {self, from, non_blocking};
  play(op, {}, &stack);
  return self;
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& made : schema.returns())
    if (made.alias_info() && !made.alias_info()->isWrite()) return true;
  return false;
}

/// Whether the operator has a kernel that a host can run in place of the device's.
bool to_play(const Operator& op) {
  static const std::set<std::string> as_they_are(
      {"aten::empty", "aten::empty_strided", "aten::resize_", "aten::resize_as_", "aten::set_",
       "aten::_local_scalar_dense", "aten::is_pinned", "aten::_pin_memory", "aten::record_stream",
       "aten::is_set_to", "aten::copy_", "aten::_efficientzerotensor",
       "aten::_copy_from_and_resize", "aten::_storage_size"});
  static const std::set<std::string> always = {"aten::convolution", "aten::convolution_backward"};
  const std::string& name = op.schema().name();
  if (as_they_are.count(name) || returns_view(op.schema())) return false;
  if (always.count(name)) return true;
  using Key = c10::DispatchKey;
  if (!op.hasKernelForDispatchKey(Key::CUDA)) return false;
  for (const Key key : {Key::CPU, Key::CompositeExplicitAutograd, Key::CompositeImplicitAutograd,
                        Key::CompositeExplicitAutogradNonFunctional})
    if (op.hasKernelForDispatchKey(key)) return true;
  return false;
}

const bool registered = [] {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__,
                                __LINE__);
  library.impl("copy_", torch::dispatch(c10::DispatchKey::CUDA, TORCH_FN(copy)));
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0 || !to_play(*op)) continue;
    const std::string dot = name.overload_name.empty() ? "" : "." + name.overload_name;
    library.impl((name.name + dot).c_str(), torch::CppFunction::makeFromBoxedFunction<&play>());
  }
  return true;
}();

}  // namespace
