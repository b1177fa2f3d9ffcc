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

const float* PaddedRows::copy(const float* source, const Layout& from, int first, int last,
                              float* buffer) const {
  const std::size_t border = std::size_t(padding) * channels;
  const std::size_t filled = std::size_t(width) * channels;
  float* to = buffer;
  for (int y = first; y < last; ++y, to += row()) {
    std::fill_n(to, border, 0.0f);
    std::copy_n(source + y * from.row(), filled, to + border);
    std::fill_n(to + border + filled, border, 0.0f);
  }
  return buffer + border;
}

double flops(const Convolution& c) {
  return 2.0 * c.output.height * c.output.width * c.output.channels * c.input.channels * c.kernel *
         c.kernel;
}

std::vector<std::string> candidates(const Convolution& convolution) {
  check(convolution);
  std::vector<std::string> names = convolution.pass == Pass::kWeightGradient
                                       ? own_weight_gradients(convolution)
                                       : own_correlations(convolution);
  const std::vector<std::string> transforms = own_transforms(convolution);
  names.insert(names.end(), transforms.begin(), transforms.end());
  if (convolution.method == Method::kDirect || names.front() == kRows) return names;
  const auto first = std::find(names.begin(), names.end(), faster_transform(convolution));
  if (first != names.end()) std::rotate(names.begin(), first, first + 1);
  return names;
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
  if (auto made = own_transformed(convolution, name)) return made;
  return convolution.pass == Pass::kWeightGradient ? own_weight_gradient(convolution, name)
                                                   : own_correlation(convolution, name);
}

}  // namespace millrace::kernels
