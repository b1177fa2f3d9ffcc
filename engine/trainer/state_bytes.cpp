#include "engine/trainer/state_bytes.h"

#include <ATen/ATen.h>

#include <cstring>

#include "engine/pipeline/bytes.h"

namespace millrace::engine {

std::string to_bytes(const stages::StateDict& state) {
  ByteWriter bytes;
  for (const auto& [name, tensor] : state) {
    const at::Tensor plain = tensor.contiguous();
    bytes.put(name).put(plain.scalar_type()).put(plain.sizes().vec());
    bytes.raw({static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()});
  }
  return bytes.bytes();
}

stages::StateDict state_of(std::string_view from) {
  stages::StateDict state;
  for (ByteReader bytes(from); !bytes.empty();) {
    const std::string name(bytes.text());
    const auto type = bytes.get<at::ScalarType>();
    const at::Tensor tensor = at::empty(bytes.list<std::int64_t>(), type);
    std::memcpy(tensor.mutable_data_ptr(), bytes.raw(tensor.nbytes()).data(), tensor.nbytes());
    state.emplace_back(name, tensor);
  }
  return state;
}

}  // namespace millrace::engine
