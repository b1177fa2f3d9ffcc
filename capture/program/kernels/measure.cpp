// What the machine can do, and which implementation is the fastest on it.
#include <algorithm>
#include <chrono>
#include <limits>
#include <new>

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/measure.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// 12 chains of fused multiply-adds, `rounds` each. Returns the operations done.
double multiply_add(int rounds, float* result) {
  constexpr int kChains = 12;
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, result[0]), term = hn::Set(d, result[1]);
  hn::Vec<decltype(d)> chains[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) chains[i] = hn::Set(d, result[0] * i);  // else one would do
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (auto& chain : chains) chain = hn::MulAdd(chain, factor, term);
  }
#pragma GCC unroll 16
  for (auto& chain : chains) result[2] += hn::GetLane(chain);
  return 2.0 * kChains * hn::Lanes(d) * rounds;
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
namespace {

HWY_EXPORT(multiply_add);

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Zeroed floats on a cache line's border.
class Buffer {
 public:
  explicit Buffer(std::size_t count)
      : data_(static_cast<float*>(::operator new(std::max<std::size_t>(count, 1) * sizeof(float),
                                                 std::align_val_t(64)))) {
    std::fill(data_, data_ + count, 0.0f);
  }
  ~Buffer() { ::operator delete(data_, std::align_val_t(64)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  float* at(std::size_t offset = 0) { return data_ + offset; }

 private:
  float* data_;
};

/// Operands of one kernel, of zeros: the time does not depend on the values.
class Trial {
 public:
  Trial(const Convolution& c, const std::string& name)
      : kernel_(make_kernel(c, name)),
        input_(c.input.floats()),
        output_(c.output.floats()),
        mask_(c.masked ? masked(c).floats() : 0),
        packed_(kernel_->packed_floats()),
        bias_(c.output.channels),
        weights_(std::size_t(c.input.channels) * c.output.channels * c.kernel * c.kernel),
        scratch_(kernel_->scratch_floats()) {
    operands_ = {.x = input_.at(c.input.first()),
                 .y = output_.at(c.output.first()),
                 .dy = output_.at(c.output.first()),
                 .dx = input_.at(c.input.first()),
                 .mask = c.masked ? mask_.at(masked(c).first()) : nullptr,
                 .packed = packed_.at(),
                 .bias = bias_.at(),
                 .weight_gradient = weights_.at(),
                 .bias_gradient = bias_.at(),
                 .scratch = scratch_.at()};
  }

  void run() {
    const auto begin = Clock::now();
    kernel_->run(operands_);
    best_ = std::min(best_, seconds_since(begin));
  }
  double best() const { return best_; }

 private:
  static Layout masked(const Convolution& c) {
    Layout mask = c.input;
    mask.halo = c.mask_halo;
    return mask;
  }

  std::unique_ptr<Kernel> kernel_;
  Buffer input_, output_, mask_, packed_, bias_, weights_, scratch_;
  Operands operands_;
  double best_ = std::numeric_limits<double>::infinity();
};

}  // namespace

double fma_peak(int repeats) {
  float values[3] = {0.5f, 1e-3f, 0};
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    const double operations = HWY_DYNAMIC_DISPATCH(multiply_add)(100'000, values);
    best = std::max(best, operations / seconds_since(begin));
  }
  return values[2] > 0 ? best : 0;  // reading the result keeps the loop
}

std::string time_and_choose(const Convolution& convolution) {
  const std::vector<std::string> names = candidates(convolution);
  if (names.size() == 1) return names.front();
  std::vector<std::unique_ptr<Trial>> trials;
  for (const std::string& name : names)
    trials.push_back(std::make_unique<Trial>(convolution, name));
  for (int round = 0; round < 20; ++round) {
    for (const auto& trial : trials) trial->run();
  }
  // The first stays unless another is clearly faster, so that noise does not choose.
  std::size_t fastest = 0;
  for (std::size_t i = 1; i < trials.size(); ++i) {
    const double bar = trials[fastest]->best() * (fastest == 0 ? 0.97 : 1);
    if (trials[i]->best() < bar) fastest = i;
  }
  return names[fastest];
}

}  // namespace millrace::kernels
#endif
