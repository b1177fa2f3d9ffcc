#include "capture/buffers.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace millrace::capture {
namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenLooks = 20us;
constexpr auto kNever = 60s;  // a device that takes this long for a sample has failed

}  // namespace

Fence::Fence(c10::Device device)
    : on_device_(at::zeros({}, at::TensorOptions(device).dtype(at::kLong))),
      on_host_(pinned_zeros({}, at::kLong)) {}

void Fence::set(Backend& stream) {
  on_device_.add_(1);
  stream.copy(on_host_, on_device_);
}

bool Fence::is_set() const {
  const std::atomic_ref count(*on_host_.mutable_data_ptr<std::int64_t>());
  return count.load(std::memory_order_acquire) == expected_;
}

void Fence::wait() const {
  const auto give_up = std::chrono::steady_clock::now() + kNever;
  while (!is_set()) {
    if (std::chrono::steady_clock::now() > give_up)
      throw std::runtime_error("a device's work has not come for 60 s");
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void Fence::reset(Backend& stream) {
  expected_ = 0;
  stream.run([this, &stream] {
    const c10::NoGradGuard no_grad;
    on_device_.zero_();
    stream.copy(on_host_, on_device_);
  });
}

SampleBuffers::SampleBuffers(int slots, at::IntArrayRef shape, at::IntArrayRef target_shape,
                             bool pinned, AsBytes as_bytes)
    : prediction(slots) {
  const auto make = [&](at::IntArrayRef sizes, bool bytes) {
    const std::vector<std::int64_t> frame{sizes[2], sizes[3], sizes[1]};
    const at::IntArrayRef laid = bytes ? frame : sizes;
    const at::ScalarType type = bytes ? at::kByte : at::kFloat;
    return pinned ? pinned_zeros(laid, type) : at::zeros(laid, type);
  };
  for (int slot = 0; slot < slots; ++slot) {
    input.push_back(make(shape, as_bytes.input));
    target.push_back(target_shape.empty() ? input.back() : make(target_shape, as_bytes.target));
  }
}

}  // namespace millrace::capture
