// The choice of a kernel, and kernels that run another one on copies: by group, or for any window.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "capture/program/kernels/internal.h"

namespace millrace::kernels {
namespace {

/// Runs a kernel for one group on copies of each group's channels in turn.
constexpr const char* kGrouped = "grouped-";  ///< followed by the kernel's name

Convolution of_one_group(const Convolution& convolution) {
  Convolution one = convolution;
  for (Layout* side : {&one.input, &one.output}) side->channels /= convolution.groups;
  one.groups = 1;
  return one;
}

class Grouped final : public Kernel {
 public:
  Grouped(const Convolution& c, const std::string& name)
      : c_(c),
        one_(of_one_group(c)),
        kernel_(make_kernel(one_, name)),
        weights_(std::size_t(one_.input.channels) * one_.output.channels * taps_of(window_of(c))) {}

  std::size_t scratch_floats() const override {
    return rounded(kernel_->scratch_floats()) + rounded(kernel_->shared_floats(1)) +
           rounded(one_.output.floats()) + (one_.masked ? 2 : 1) * rounded(one_.input.floats());
  }

  /// Threads share the groups.
  void run(const Operands& operands, int, Share share) const override {
    const auto [begin, end] = share.of(std::size_t(c_.groups));
    for (std::size_t group = begin; group < end; ++group) run_group(operands, group);
  }

 private:
  static std::size_t rounded(std::size_t floats) { return round_up(floats, 16); }

  void run_group(const Operands& all, std::size_t group) const {
    float* at = all.scratch;
    const auto next = [&](std::size_t floats) {
      float* const begin = at;
      at += rounded(floats);
      return begin;
    };
    Operands one{.scratch = next(kernel_->scratch_floats()),
                 .shared = next(kernel_->shared_floats(1))};
    const Layout &from = source_of(one_), &to = made_by(one_);
    const std::size_t sources = group * from.channels, made = group * to.channels;
    const auto gathered = [&](const float* image, const Layout& part, int channels) {
      float* const copy = next(part.floats());
      copy_channels(image, channels, part, copy, part.channels);
      return copy;
    };
    one.source = gathered(all.source + sources, from, source_of(c_).channels);
    if (c_.pass == Pass::kWeightGradient) {
      one.x = gathered(all.x + made, to, c_.input.channels);
      one.made = all.made + group * weights_;
      if (all.bias_gradient) one.bias_gradient = all.bias_gradient + sources;
      return kernel_->run(one);
    }
    one.weights = all.weights + group * weights_;
    if (all.bias) one.bias = all.bias + made;
    if (all.mask) one.mask = gathered(all.mask + made, to, c_.input.channels);
    one.made = next(to.floats());
    kernel_->run(one);
    copy_channels(one.made, to.channels, to, all.made + made, made_by(c_).channels);
  }

  /// Copies the pixels of `part`; steps are floats between pixels.
  static void copy_channels(const float* from, int from_step, const Layout& part, float* to,
                            int to_step) {
    for (int i = 0; i < part.height * part.width; ++i, from += from_step, to += to_step)
      std::copy_n(from, part.channels, to);
  }

  const Convolution c_, one_;
  const std::unique_ptr<Kernel> kernel_;
  const std::size_t weights_;  ///< per group
};

/// For any window: even or unequal sides, without padding, dilated. The inputs under an output's
/// taps become the channels of one pixel, in the order of PyTorch's weights, for a 1x1 kernel.
constexpr const char* kUnfolded = "unfolded-";  ///< followed by the kernel's name

Convolution of_one_tap(const Convolution& c) {
  Convolution one = c;
  one.input = {.height = c.output.height,
               .width = c.output.width,
               .channels = c.input.channels * taps_of(window_of(c))};
  one.window.reset();
  one.kernel = one.stride = 1;
  one.masked = false;
  return one;
}

class Unfolded final : public Kernel {
 public:
  Unfolded(const Convolution& c, const std::string& name)
      : c_(c), one_(of_one_tap(c)), kernel_(make_kernel(one_, name)) {}

  std::size_t scratch_floats() const override { return kernel_->scratch_floats(); }
  std::size_t shared_floats(int threads) const override {
    return round_up(one_.input.floats(), 16) + kernel_->shared_floats(threads);
  }
  int phases(int threads) const override { return 1 + kernel_->phases(threads); }

  void run(const Operands& operands, int phase, Share share) const override {
    float* const unfolded = operands.shared;
    const bool folds = c_.pass == Pass::kDataGradient;
    if (folds && phase == kernel_->phases(share.count)) return fold(unfolded, operands, share);
    if (!folds && phase == 0)
      return unfold(c_, forward(c_) ? operands.source : operands.x, unfolded,
                    std::size_t(one_.input.channels), share);
    Operands one = operands;
    if (forward(c_)) one.source = unfolded;
    if (folds) one.made = unfolded;
    one.x = unfolded;
    one.mask = nullptr;
    one.shared = unfolded + round_up(one_.input.floats(), 16);
    kernel_->run(one, folds ? phase : phase - 1, share);
  }

 private:
  /// Sums for each input pixel the gradients of the taps on it. Threads share the input's rows.
  void fold(const float* unfolded, const Operands& operands, Share share) const {
    const Taps columns = window_of(c_).columns;
    const int taps = taps_of(window_of(c_));
    const Layout& in = c_.input;
    const auto [begin, end] = share.of(std::size_t(in.height));
    for (int y = int(begin); y < int(end); ++y) {
      for (int x = 0; x < in.width; ++x) {
        const std::size_t at = y * in.row() + std::size_t(x) * in.channels;
        float* const to = operands.made + at;
        std::fill_n(to, in.channels, 0.0f);
        for (const TapOn& down : on_rows_[y]) {
          for (const TapOn& right : on_columns_[x]) {
            const float* const from = unfolded + down.output * one_.input.row() +
                                      std::size_t(right.output) * one_.input.channels +
                                      down.tap * columns.count + right.tap;
            for (int i = 0; i < in.channels; ++i) to[i] += from[std::size_t(i) * taps];
          }
        }
        if (operands.mask)
          finish_rows({.values = to,
                       .finish = {.mask = operands.mask + at, .to = to},
                       .count = std::size_t(in.channels)});
      }
    }
  }

  /// A tap that lies on a row or column of the input, and the output's row or column it is for.
  struct TapOn {
    int tap, output;
  };
  using TapsOn = std::vector<std::vector<TapOn>>;  ///< [row or column of the input]
  static TapsOn taps_on(const Taps& taps, int inputs, int outputs) {
    TapsOn all;
    all.resize(std::size_t(inputs));
    for (int tap = 0; tap < taps.count; ++tap) {
      for (int output = 0; output < outputs; ++output) {
        const int at = output * taps.stride - taps.padding + tap * taps.dilation;
        if (at >= 0 && at < inputs) all[std::size_t(at)].push_back({tap, output});
      }
    }
    return all;
  }

  const Convolution c_, one_;
  const std::unique_ptr<Kernel> kernel_;
  const TapsOn on_rows_ = taps_on(window_of(c_).rows, c_.input.height, c_.output.height);
  const TapsOn on_columns_ = taps_on(window_of(c_).columns, c_.input.width, c_.output.width);
};

void put_first(std::vector<std::string>& names, const std::string& name) {
  const auto first = std::find(names.begin(), names.end(), name);
  if (first != names.end()) std::rotate(names.begin(), first, first + 1);
}

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
  if (convolution.kernel == 1 && convolution.stride == 1) {
    const bool first = names.front() == kWide || names.front() == kPlain;
    names.insert(first && matrix_is_faster(convolution) ? names.begin() : names.end(), kMatrix);
  }
  if (convolution.method == Method::kDirect || names.front() == kRows) return names;
  put_first(names, faster_transform(convolution));
  return names;
}

std::string first_of(Convolution c, Pass pass) {
  c.pass = pass;
  return candidates(c).front();
}

/// Kernels of both gradients; first the one that computes the data gradient alone.
std::vector<std::string> of_both_gradients(const Convolution& c) {
  if (c.groups > 1 || c.window) return {};
  std::vector<std::string> names = transforms(c);
  put_first(names, first_of(c, Pass::kDataGradient));
  return names;
}

std::unique_ptr<Kernel> kernel_of(const Convolution& c, const std::string& name) {
  const bool of_weights = c.pass == Pass::kWeightGradient;
  if (name == kBf16) return make_bf16(c);
  if (name == kMatrix) return make_matrix(c);
  if (name == kRows) return make_rows(c);
  if (name == kDepthwise) return make_depthwise(c);
  if (name.starts_with(kGrouped))
    return std::make_unique<Grouped>(c, name.substr(std::strlen(kGrouped)));
  if (name.starts_with(kUnfolded))
    return std::make_unique<Unfolded>(c, name.substr(std::strlen(kUnfolded)));
  if (auto made = make_transformed(c, name)) return made;
  return of_weights ? make_weight_gradient(c, name) : make_correlation(c, name);
}

}  // namespace

std::vector<Axis> axes_of(Pass pass, const Taps& taps, int size) {
  if (pass == Pass::kForward)
    return {{.count = taps.count,
             .from = -taps.padding,
             .pace = taps.stride,
             .spread = taps.dilation,
             .size = size}};
  std::vector<Axis> axes;
  const int s = taps.stride, common = std::gcd(s, taps.dilation), period = s / common;
  for (int to = 0; to < s; ++to) {
    int first = 0;
    while (first < period && (to + taps.padding - first * taps.dilation) % s != 0) ++first;
    const int count = first < period ? divided_up(taps.count - first, period) : 0;
    const int last = first + period * (count - 1);
    axes.push_back({.count = count,
                    .first = last,
                    .step = -period,
                    .from = (to + taps.padding - last * taps.dilation) / s,
                    .spread = taps.dilation / common,
                    .to = to,
                    .to_step = s,
                    .size = divided_up(size - to, s)});
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

void unfold(const Convolution& c, const float* x, float* to, std::size_t of_pixel, Share share) {
  const auto [rows, columns] = window_of(c);
  const std::size_t taps = std::size_t(rows.count) * columns.count,
                    of_row = c.output.width * of_pixel;
  const auto [begin, end] = share.of(std::size_t(c.output.height));
  to += begin * of_row;
  std::fill_n(to, (end - begin) * of_row, 0.0f);
  for (int y = int(begin); y < int(end); ++y) {
    const Met down(rows, y, c.input.height);
    for (int u = 0; u < c.output.width; ++u, to += of_pixel) {
      const Met right(columns, u, c.input.width);
      for (int i = down.first; i < down.last; ++i) {
        for (int j = right.first; j < right.last; ++j) {
          const float* const from =
              x + (down.begin + i * rows.dilation) * c.input.row() +
              std::size_t(right.begin + j * columns.dilation) * c.input.channels;
          float* const tap = to + i * columns.count + j;
          for (int k = 0; k < c.input.channels; ++k) tap[k * taps] = from[k];
        }
      }
    }
  }
}

void bias_gradient(const Convolution& c, const Operands& operands, Share share) {
  if (operands.bias_gradient)
    channel_sums(c.output, operands.source, 1, operands.bias_gradient, share, c.accumulate);
}

std::vector<std::string> candidates(const Convolution& convolution) {
  if (convolution.pass == Pass::kGradients) return of_both_gradients(convolution);
  std::vector<std::string> names = float32_candidates(convolution);
  if (bf16_can_do(convolution))
    names.insert(bf16_is_faster(convolution) ? names.begin() : names.end(), kBf16);
  return names;
}

bool gradients_together(const Convolution& c) {
  const std::string data = first_of(c, Pass::kDataGradient);
  const std::vector<std::string> names = transforms(c);
  return first_of(c, Pass::kWeightGradient) == data &&
         std::find(names.begin(), names.end(), data) != names.end();
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
