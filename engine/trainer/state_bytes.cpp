#include "engine/trainer/state_bytes.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace millrace::engine {
namespace {

void put(std::string& to, std::int64_t number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::string_view take(std::string_view& from, std::int64_t bytes) {
  if (bytes < 0 || std::size_t(bytes) > from.size())
    throw std::runtime_error("a state from another rank was cut short");
  const std::string_view taken = from.substr(0, std::size_t(bytes));
  from.remove_prefix(std::size_t(bytes));
  return taken;
}

std::int64_t number(std::string_view& from) {
  std::int64_t value = 0;
  std::memcpy(&value, take(from, sizeof value).data(), sizeof value);
  return value;
}

}  // namespace

std::string to_bytes(const stages::StateDict& state) {
  std::string bytes;
  for (const auto& [name, tensor] : state) {
    const at::Tensor plain = tensor.contiguous();
    put(bytes, std::int64_t(name.size()));
    bytes += name;
    put(bytes, std::int64_t(plain.scalar_type()));
    put(bytes, plain.dim());
    for (const std::int64_t size : plain.sizes()) put(bytes, size);
    bytes.append(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  }
  return bytes;
}

stages::StateDict state_of(std::string_view bytes) {
  stages::StateDict state;
  while (!bytes.empty()) {
    const std::string name(take(bytes, number(bytes)));
    const auto type = at::ScalarType(number(bytes));
    std::vector<std::int64_t> sizes;
    for (std::int64_t dims = number(bytes); dims > 0; --dims) sizes.push_back(number(bytes));
    at::Tensor tensor = at::empty(sizes, type);
    std::memcpy(tensor.mutable_data_ptr(), take(bytes, std::int64_t(tensor.nbytes())).data(),
                tensor.nbytes());
    state.emplace_back(name, std::move(tensor));
  }
  return state;
}

}  // namespace millrace::engine
