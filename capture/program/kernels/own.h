// The kernels of this folder's own. Internal to it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {

constexpr const char* kWide = "wide";  ///< vectors along the output channels
std::vector<std::string> own_correlations(const Convolution& convolution);
std::unique_ptr<Kernel> own_correlation(const Convolution& convolution, const std::string& name);

/// For few output pixels and many weights, which run() reads as PyTorch orders them.
constexpr const char* kRows = "rows";
bool rows_are_faster(const Convolution& convolution);
std::unique_ptr<Kernel> own_rows(const Convolution& convolution);

/// For a kernel of one tap.
constexpr const char* kMatrix = "matrix";
bool matrix_can_do(const Convolution& convolution);
bool matrix_is_faster(const Convolution& convolution);
std::unique_ptr<Kernel> own_matrix(const Convolution& convolution);

constexpr const char* kPlain = "plain";  ///< likewise
std::vector<std::string> own_weight_gradients(const Convolution& convolution);
std::unique_ptr<Kernel> own_weight_gradient(const Convolution& convolution,
                                            const std::string& name);

/// As products of transformed squares; empty: none can do it.
std::vector<std::string> own_transforms(const Convolution& convolution);
/// The one that is fastest of those that the method allows, if it is faster than a direct kernel;
/// else empty. By shape alone.
std::string faster_transform(const Convolution& convolution);
/// Null: the name is none of own_transforms().
std::unique_ptr<Kernel> own_transformed(const Convolution& convolution, const std::string& name);

/// For a convolution of each channel by itself: vectors along the channels.
constexpr const char* kDepthwise = "depthwise";
std::unique_ptr<Kernel> own_depthwise(const Convolution& convolution);

/// Products of bfloat16 on processors that have them, for columns of taps side by side.
constexpr const char* kBf16 = "bf16";
bool bf16_can_do(const Convolution& convolution);
bool bf16_is_faster(const Convolution& convolution);
std::unique_ptr<Kernel> own_bf16(const Convolution& convolution);
std::unique_ptr<Kernel> own_bf16_weights(const Convolution& convolution);
/// A convolution of one tap that takes each pixel, with all pixels in one row.
Convolution in_one_row(const Convolution& convolution);

/// A kernel of one group's channels, group by group, on copies of them.
constexpr const char* kGrouped = "grouped-";  ///< and the kernel's name
Convolution of_one_group(const Convolution& convolution);
std::unique_ptr<Kernel> own_grouped(const Convolution& convolution, const std::string& name);

/// A window of any kind: what its taps meet, side by side, is the input of a kernel of one tap.
constexpr const char* kUnfolded = "unfolded-";  ///< and the kernel's name
Convolution of_one_tap(const Convolution& convolution);
std::unique_ptr<Kernel> own_unfolded(const Convolution& convolution, const std::string& name);

/// Rows of an image with zeros left and right.
struct PaddedRows {
  int padding = 0;
  int width = 0, channels = 0;
  std::size_t row() const { return std::size_t(width + 2 * padding) * channels; }
  /// Copies rows [first, last). \returns the address of pixel (first, 0) in `buffer`, which takes
  /// (last - first) * row() floats.
  const float* copy(const float* source, const Layout& from, int first, int last,
                    float* buffer) const;
};

}  // namespace millrace::kernels
