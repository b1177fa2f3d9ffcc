// Which implementations there are for a convolution, and making one ready.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "capture/program/kernels/kernels.h"
#include "capture/program/kernels/own.h"

namespace millrace::kernels {
namespace {

void require(bool met, const char* what) {
  if (!met) throw std::invalid_argument(std::string("convolution: ") + what);
}

void check(const Convolution& c) {
  require(c.window || (c.kernel > 0 && c.kernel % 2 == 1), "the kernel is not odd");
  const auto [rows, columns] = window_of(c);
  for (const Taps& taps : {rows, columns}) {
    require(taps.count > 0 && taps.stride > 0 && taps.dilation > 0 && taps.padding >= 0,
            "a kernel's side, stride or dilation is not positive");
  }
  for (const Layout& side : {c.input, c.output}) {
    require(side.height > 0 && side.width > 0 && side.channels > 0, "an image is empty");
  }
  require(c.output.height == rows.outputs(c.input.height) &&
              c.output.width == columns.outputs(c.input.width),
          "the output's size is not what the window makes of the input's");
  require(c.groups > 0 && c.input.channels % c.groups == 0 && c.output.channels % c.groups == 0,
          "the groups do not divide the channels");
}

/// Names of what does a part of the work, behind what does the rest.
std::vector<std::string> with_prefix(const char* prefix, std::vector<std::string> names) {
  for (std::string& name : names) name.insert(0, prefix);
  return names;
}

/// Of one group or one tap, they may be of less precision, too.
std::vector<std::string> float32_candidates(const Convolution& convolution) {
  if (convolution.groups > 1 && convolution.groups == convolution.input.channels &&
      convolution.groups == convolution.output.channels)
    return {kDepthwise};
  if (convolution.groups > 1) return with_prefix(kGrouped, candidates(of_one_group(convolution)));
  if (convolution.window) return with_prefix(kUnfolded, candidates(of_one_tap(convolution)));
  std::vector<std::string> names = convolution.pass == Pass::kWeightGradient
                                       ? own_weight_gradients(convolution)
                                       : own_correlations(convolution);
  const std::vector<std::string> transforms = own_transforms(convolution);
  names.insert(names.end(), transforms.begin(), transforms.end());
  if (matrix_can_do(convolution)) {
    const bool first = names.front() == kWide || names.front() == kPlain;
    names.insert(first && matrix_is_faster(convolution) ? names.begin() : names.end(), kMatrix);
  }
  if (convolution.method == Method::kDirect || names.front() == kRows) return names;
  const auto first = std::find(names.begin(), names.end(), faster_transform(convolution));
  if (first != names.end()) std::rotate(names.begin(), first, first + 1);
  return names;
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

TapGrid window_of(const Convolution& c) {
  const Taps taps{.count = c.kernel, .stride = c.stride, .padding = c.kernel / 2};
  return c.window.value_or(TapGrid{taps, taps});
}

double flops(const Convolution& c) {
  return 2.0 * c.output.height * c.output.width * c.output.channels * c.input.channels *
         taps_of(window_of(c)) / c.groups;
}

std::vector<std::string> candidates(const Convolution& convolution) {
  check(convolution);
  std::vector<std::string> names = float32_candidates(convolution);
  if (bf16_can_do(convolution))
    names.insert(bf16_is_faster(convolution) ? names.begin() : names.end(), kBf16);
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
  if (name == kBf16) return own_bf16(convolution);
  if (name == kMatrix) return own_matrix(convolution);
  if (name == kDepthwise) return own_depthwise(convolution);
  if (name.starts_with(kGrouped))
    return own_grouped(convolution, name.substr(std::strlen(kGrouped)));
  if (name.starts_with(kUnfolded))
    return own_unfolded(convolution, name.substr(std::strlen(kUnfolded)));
  if (auto made = own_transformed(convolution, name)) return made;
  return convolution.pass == Pass::kWeightGradient ? own_weight_gradient(convolution, name)
                                                   : own_correlation(convolution, name);
}

}  // namespace millrace::kernels
