// Weights between PyTorch's order and vectors along the channels.
#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

std::size_t lanes() {
  return hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<float>());
}

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(lanes);
HWY_EXPORT(target_name);

std::size_t lanes() {
  return HWY_DYNAMIC_DISPATCH(lanes)();
}
std::string instruction_set() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

void to_lanes(const float* rows, std::size_t stride, std::size_t row_count,
              const std::vector<std::uint32_t>& places, float* packed) {
  const std::size_t count = lanes();
  for (std::size_t q = 0; q < places.size(); ++q) {
    for (std::size_t l = 0; l < count; ++l)
      packed[places[q] + l] = l < row_count ? rows[l * stride + q] : 0;
  }
}

void from_lanes(const float* packed, const std::vector<std::uint32_t>& places, float* rows,
                std::size_t stride, std::size_t row_count, bool add) {
  for (std::size_t l = 0; l < row_count; ++l) {
    for (std::size_t q = 0; q < places.size(); ++q) {
      const float value = packed[places[q] + l];
      rows[l * stride + q] = add ? rows[l * stride + q] + value : value;
    }
  }
}

}  // namespace millrace::kernels
#endif
