#include "capture/program/values.h"

#include <algorithm>

#include "capture/program/operation.h"

namespace millrace::program {
namespace {

Range storage_range(const c10::Storage& storage) {
  const auto* begin = static_cast<const char*>(storage.data());
  return {begin, begin + storage.nbytes()};
}

/// Calls visit(tensor, writes) with a node's defined tensors.
template <class Visit>
void each_operand(const Node& node, const Visit& visit) {
  for (const at::Tensor& tensor : node.reads) {
    if (tensor.defined()) visit(tensor, false);
  }
  for (const at::Tensor& tensor : node.writes) {
    if (tensor.defined()) visit(tensor, true);
  }
}

/// A storage in a recording.
struct Held {
  at::Tensor tensor;            ///< the first; this adds no reference to its storage
  std::size_t count = 0;        ///< of tensors in calls
  const Call* maker = nullptr;  ///< null: it was there before
};

/// In the order of their first calls.
std::vector<Held> storages_of(const std::vector<Call>& calls) {
  std::vector<Held> all;
  std::map<const c10::StorageImpl*, std::size_t> places;
  const auto hold = [&](const at::Tensor& tensor, const Call* maker) {
    const auto [found, is_new] =
        places.emplace(tensor.storage().unsafeGetStorageImpl(), all.size());
    if (is_new) all.push_back({.tensor = tensor, .maker = maker});
    ++all[found->second].count;
  };
  for (const Call& call : calls) {
    each_tensor(call.arguments, [&](const at::Tensor& t) { hold(t, nullptr); });
    each_tensor(call.results, [&](const at::Tensor& t) { hold(t, &call); });
  }
  return all;
}

}  // namespace

Range range_of(const at::Tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 0) return {begin, begin};
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return {begin, begin + (last + 1) * std::int64_t(tensor.itemsize())};
}

Values::Values(const std::vector<Call>& calls, const capture::KeptIn::Exceptions& exceptions) {
  for (const Held& held : storages_of(calls)) {
    const c10::Storage& storage = held.tensor.storage();
    const bool own = held.maker && storage.use_count() == held.count;
    if (storage.nbytes() == 0) continue;
    Value& value = insert(held.tensor);
    value.own = own;
    const auto* const here = storage.unsafeGetStorageImpl();
    if (!held.maker || std::ranges::count(exceptions.stay, here) > 0) continue;
    if (!own) value.kept_in = held.maker->kept_in;
    if (!own && !value.kept_in) continue;  // others rely on where it is
    const auto found =
        std::ranges::find(exceptions.united, here, [](const auto& one) { return one.first; });
    if (found != exceptions.united.end()) value.copy = found->second;
  }
}

void Values::add_made(const std::vector<Call>& calls) {
  for (const Held& held : storages_of(calls))
    if (held.maker) add(held.tensor);
}

void Values::add(const at::Tensor& tensor) {
  if (tensor.storage().nbytes() > 0) insert(tensor).own = true;
}

Value& Values::insert(const at::Tensor& tensor) {
  Range range = storage_range(tensor.storage());
  auto found = by_address_.upper_bound(range.begin);
  if (found != by_address_.begin()) --found;
  while (found != by_address_.end() && found->first < range.end) {
    Value& other = all_[found->second];
    if (!other.range.overlaps(range)) {
      ++found;
      continue;
    }
    range = {std::min(range.begin, other.range.begin), std::max(range.end, other.range.end)};
    other = {};
    found = by_address_.erase(found);
  }
  by_address_[range.begin] = all_.size();
  return all_.emplace_back(Value{all_.size(), range, tensor.storage()});
}

const Value* Values::of(const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.numel() == 0) return nullptr;
  const auto* const begin = static_cast<const char*>(tensor.const_data_ptr());
  const auto next = by_address_.upper_bound(begin);
  if (next == by_address_.begin()) return nullptr;
  const Value& value = all_[std::prev(next)->second];
  return begin < value.range.end ? &value : nullptr;
}

Value* Values::mine(const at::Tensor& tensor) {
  const Value* const value = of(tensor);
  return value ? &all_[value->id] : nullptr;
}

void Values::fix(const at::Tensor& tensor) {
  Value* const value = mine(tensor);
  if (!value) return;
  value->own = false;
  value->kept_in = nullptr;
}

bool Values::unite(const at::Tensor& tensor, const at::Tensor& copy) {
  Value* const value = mine(tensor);
  const Range all = range_of(tensor);
  if (!value || value->united || !value->copy.defined() || !same_memory(value->copy, copy) ||
      tensor.strides() != copy.strides() || all.begin != value->range.begin ||
      all.end != value->range.end)
    return false;
  fix(tensor);
  return value->united = true;
}

void Values::link(std::span<const Node> nodes) {
  for (const Node& node : nodes) {
    each_operand(node, [&](const at::Tensor& tensor, bool) {
      if (!of(tensor) && tensor.numel() > 0) insert(tensor);
    });
  }
  for (Value& value : all_) value.uses.clear();
  for (std::size_t i = 0; i < nodes.size(); ++i) link(i, nodes[i]);
}

void Values::link(std::size_t index, const Node& node) {
  each_operand(node, [&](const at::Tensor& tensor, bool writes) {
    Value* const value = mine(tensor);
    if (!value) return;
    const auto after = std::ranges::upper_bound(value->uses, index, {}, &Use::node);
    value->uses.insert(after, {index, range_of(tensor), writes});
  });
}

void Values::unlink(std::size_t index, const Node& node) {
  each_operand(node, [&](const at::Tensor& tensor, bool) {
    if (Value* const value = mine(tensor))
      std::erase_if(value->uses, [&](const Use& use) { return use.node == index; });
  });
}

bool Values::used(const at::Tensor& tensor, std::size_t begin, std::size_t end,
                  bool only_written) const {
  const Value* const value = of(tensor);
  if (!value) return false;
  const Range range = range_of(tensor);
  const auto first = std::ranges::lower_bound(value->uses, begin, {}, &Use::node),
             last = std::ranges::lower_bound(value->uses, end, {}, &Use::node);
  return std::any_of(first, last, [&](const Use& use) {
    return (use.writes || !only_written) && use.range.overlaps(range);
  });
}

}  // namespace millrace::program
