#include "capture/program/node.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

namespace millrace::program {

Range range_of(const at::Tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 0) return {begin, begin};
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return {begin, begin + (last + 1) * std::int64_t(tensor.itemsize())};
}

bool touches(const std::vector<at::Tensor>& tensors, const Range& range) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& t) {
    return t.defined() && range_of(t).overlaps(range);
  });
}

Range storage_range(const at::Tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.storage().data());
  return {begin, begin + tensor.storage().nbytes()};
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && (tensor.is_cpu() || tensor.is_cuda()) &&
         tensor.is_non_overlapping_and_dense();
}

at::MemoryFormat image_format(c10::Device device) {
  return device.is_cuda() ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
}

bool is_image(const at::Tensor& tensor) {
  return is_dense(tensor) && tensor.dim() == 4 && tensor.size(0) == 1 &&
         tensor.is_contiguous(image_format(tensor.device()));
}

kernels::Layout layout_of(const at::Tensor& tensor) {
  return {
      .height = int(tensor.size(2)), .width = int(tensor.size(3)), .channels = int(tensor.size(1))};
}

bool lie_alike(const at::Tensor& a, const at::Tensor& b) {
  return is_dense(a) && is_dense(b) && a.device() == b.device() && a.sizes() == b.sizes() &&
         (a.strides() == b.strides() || (is_image(a) && is_image(b)) ||
          (a.is_contiguous() && b.is_contiguous()));
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() &&
         (a.strides() == b.strides() || lie_alike(a, b));
}

std::vector<std::int64_t> by_stride(const at::Tensor& tensor) {
  std::vector<std::int64_t> order;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return tensor.stride(a) > tensor.stride(b); });
  return order;
}

OwnMemory::OwnMemory(const std::vector<Call>& calls) {
  std::set<const c10::StorageImpl*> seen;
  std::map<const c10::StorageImpl*, std::size_t> held;
  std::vector<std::pair<at::Tensor, capture::Arena*>> made;
  for (const Call& call : calls) {
    each_tensor(call.arguments, [&](const at::Tensor& t) {
      seen.insert(storage(t));
      ++held[storage(t)];
    });
    each_tensor(call.results, [&](const at::Tensor& t) {
      ++held[storage(t)];
      if (seen.insert(storage(t)).second) made.emplace_back(t, call.kept_in);
    });
  }
  for (const auto& [tensor, arena] : made) {
    // `made` shares the calls' tensor objects and so adds no reference to their storages.
    if (std::size_t(tensor.storage().use_count()) == held.at(storage(tensor))) {
      add(tensor);
    } else if (arena) {
      kept_.emplace_back(tensor, arena);
    }
  }
}

void OwnMemory::add_made(const std::vector<Call>& calls) {
  std::set<const c10::StorageImpl*> seen;
  for (const Call& call : calls) {
    each_tensor(call.arguments, [&](const at::Tensor& t) { seen.insert(storage(t)); });
    each_tensor(call.results, [&](const at::Tensor& t) {
      if (seen.insert(storage(t)).second) add(t);
    });
  }
}

}  // namespace millrace::program
