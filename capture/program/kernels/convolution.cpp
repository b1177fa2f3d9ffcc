#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "capture/program/kernels/internal.h"

namespace millrace::kernels {
namespace {

/// Names of composite kernels: `prefix` before the inner kernel's name.
std::vector<std::string> with_prefix(const char* prefix, std::vector<std::string> names) {
  for (std::string& name : names) name.insert(0, prefix);
  return names;
}

/// For one group or one tap, the inner kernels may have lower precision.
std::vector<std::string> float32_candidates(const Convolution& convolution) {
  if (convolution.groups > 1 && convolution.groups == convolution.input.channels &&
      convolution.groups == convolution.output.channels)
    return {kDepthwise};
  if (convolution.groups > 1) return with_prefix(kGrouped, candidates(of_one_group(convolution)));
  if (convolution.window) return with_prefix(kUnfolded, candidates(of_one_tap(convolution)));
  std::vector<std::string> names = convolution.pass == Pass::kWeightGradient
                                       ? weight_gradients(convolution)
                                       : correlations(convolution);
  for (const std::string& name : transforms(convolution)) names.push_back(name);
  if (matrix_can_do(convolution)) {
    const bool first = names.front() == kWide || names.front() == kPlain;
    names.insert(first && matrix_is_faster(convolution) ? names.begin() : names.end(), kMatrix);
  }
  if (convolution.method == Method::kDirect || names.front() == kRows) return names;
  const auto first = std::find(names.begin(), names.end(), faster_transform(convolution));
  if (first != names.end()) std::rotate(names.begin(), first, first + 1);
  return names;
}

std::unique_ptr<Kernel> kernel_of(const Convolution& c, const std::string& name) {
  const bool of_weights = c.pass == Pass::kWeightGradient;
  if (name == kBf16) return make_bf16(c);
  if (name == kMatrix) return make_matrix(c);
  if (name == kRows) return make_rows(c);
  if (name == kDepthwise) return make_depthwise(c);
  if (name.starts_with(kGrouped)) return make_grouped(c, name.substr(std::strlen(kGrouped)));
  if (name.starts_with(kUnfolded)) return make_unfolded(c, name.substr(std::strlen(kUnfolded)));
  if (auto made = make_transformed(c, name)) return made;
  return of_weights ? make_weight_gradient(c, name) : make_correlation(c, name);
}

}  // namespace

std::vector<Axis> axes_of(Pass pass, const Taps& taps, int size) {
  if (pass == Pass::kForward)
    return {{.count = taps.count, .from = -taps.padding, .pace = taps.stride, .size = size}};
  std::vector<Axis> axes;
  const int s = taps.stride;
  for (int to = 0; to < s; ++to) {
    const int first = (to + taps.padding) % s, count = (taps.count - first + s - 1) / s;
    axes.push_back({.count = count,
                    .first = first + s * (count - 1),
                    .step = -s,
                    .from = (to + taps.padding - first) / s - (count - 1),
                    .to = to,
                    .to_step = s,
                    .size = (size - to + s - 1) / s});
  }
  return axes;
}

const float* pad_rows(const Layout& image, int padding, const float* source, int first, int last,
                      float* buffer) {
  const std::size_t border = std::size_t(padding) * image.channels, filled = image.row();
  float* to = buffer;
  for (int y = first; y < last; ++y, to += padded_row(image, padding)) {
    std::fill_n(to, border, 0.0f);
    std::copy_n(source + y * image.row(), filled, to + border);
    std::fill_n(to + border + filled, border, 0.0f);
  }
  return buffer + border;
}

void bias_gradient(const Convolution& c, const Operands& operands, Share share) {
  if (!operands.bias_gradient) return;
  const auto [first, last] = share.of(c.output.channels, lanes());
  channel_sums(operands.source, c.output, first, last, operands.bias_gradient, c.accumulate);
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
  std::vector<std::string> names = float32_candidates(convolution);
  if (bf16_can_do(convolution))
    names.insert(bf16_is_faster(convolution) ? names.begin() : names.end(), kBf16);
  return names;
}

std::unique_ptr<Kernel> make_kernel(const Convolution& convolution,
                                    const std::string& implementation) {
  const std::vector<std::string> names = candidates(convolution);
  const std::string name = implementation.empty() ? names.front() : implementation;
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw std::invalid_argument("convolution: no implementation \"" + name + "\" here");
  std::unique_ptr<Kernel> made = kernel_of(convolution, name);
  made->name = name;
  return made;
}

}  // namespace millrace::kernels
