// Which implementations there are for a convolution, and making one ready.
#include <algorithm>
#include <stdexcept>

#include "capture/program/kernels/kernels.h"
#include "capture/program/kernels/own.h"

namespace millrace::kernels {
namespace {

void require(bool met, const char* what) {
  if (!met) throw std::invalid_argument(std::string("convolution: ") + what);
}

void check(const Convolution& c) {
  require(c.kernel > 0 && c.kernel % 2 == 1, "the kernel is not odd");
  require(c.stride > 0, "the stride is not positive");
  for (const Layout& side : {c.input, c.output}) {
    require(side.height > 0 && side.width > 0 && side.channels > 0, "an image is empty");
    require(side.halo >= 0, "a halo is negative");
  }
  require(c.mask_halo >= 0, "a halo is negative");
  require(c.output.height == (c.input.height - 1) / c.stride + 1 &&
              c.output.width == (c.input.width - 1) / c.stride + 1,
          "the output's size is not (input - 1) / stride + 1");
}

}  // namespace

Layout padded(const Layout& layout, int kernel) {
  return {layout.height, layout.width, layout.channels, kernel / 2};
}

const float* copy_padded(const float* source, const Layout& from, int kernel, float* buffer) {
  const Layout to = padded(from, kernel);
  float* first = buffer + to.first();
  const std::size_t border = std::size_t(to.halo) * to.channels;
  const std::size_t filled = std::size_t(to.width) * to.channels;
  std::fill(buffer, first - border, 0.0f);
  for (int y = 0; y < to.height; ++y) {
    float* row = first + y * to.row();
    std::fill(row - border, row, 0.0f);
    std::copy_n(source + y * from.row(), filled, row);
    std::fill(row + filled, row + filled + border, 0.0f);
  }
  std::fill(first - border + to.height * to.row(), buffer + to.floats(), 0.0f);
  return first;
}

double flops(const Convolution& c) {
  return 2.0 * c.output.height * c.output.width * c.output.channels * c.input.channels * c.kernel *
         c.kernel;
}

std::vector<std::string> candidates(const Convolution& convolution) {
  check(convolution);
  return convolution.pass == Pass::kWeightGradient ? own_weight_gradients(convolution)
                                                   : own_correlations(convolution);
}

std::unique_ptr<Kernel> make_kernel(const Convolution& convolution,
                                    const std::string& implementation) {
  const std::vector<std::string> names = candidates(convolution);
  const std::string name = implementation.empty() ? names.front() : implementation;
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    std::string known;
    for (const std::string& each : names) known += (known.empty() ? "" : ", ") + each;
    throw std::invalid_argument("convolution: no implementation \"" + name + "\" here, only " +
                                known);
  }
  return convolution.pass == Pass::kWeightGradient ? own_weight_gradient(convolution, name)
                                                   : own_correlation(convolution, name);
}

}  // namespace millrace::kernels
