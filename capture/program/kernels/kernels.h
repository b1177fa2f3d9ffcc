// The compute kernels of a training step on one core: float32, NHWC. Needs no LibTorch.
//
// A Convolution is prepared once (make_kernel) and run every step on the caller's memory. run()
// neither allocates nor locks, and an implementation gives the same bits on one thread and on a
// team. All is reentrant: threads may share a Kernel if each has its own scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/program/kernels/arguments.h"
#include "capture/program/kernels/team.h"

namespace millrace::kernels {

/// kGradients: data and weight gradient at once.
enum class Pass { kForward, kDataGradient, kWeightGradient, kGradients };
inline bool makes_weights(Pass pass) {
  return pass == Pass::kWeightGradient || pass == Pass::kGradients;
}

enum class Method {
  kAccurate,  ///< rounding error at most 2.4 times that of LibTorch's float32 sums
  kFast,      ///< also those with errors up to 3e-5 of the result's norm
  kDirect,    ///< only direct sums of products
};
inline const char* const kMethodNames[] = {"accurate", "fast", "direct"};

/// Precision of a product's factors. Weights, sums and updates are always float32.
enum class Precision { kFloat32, kTf32, kBf16 };
inline const char* const kPrecisionNames[] = {"float32", "tf32", "bf16"};

/// The user's choices of how a network computes.
struct Numerics {
  Method method = Method::kAccurate;
  Precision precision = Precision::kFloat32;
  bool tuned = false;  ///< GPU kernels are chosen by timing instead of shape
};

/// One pass of a 2D convolution. Without `window`, its kernel is an odd square with kernel / 2
/// zeros around the input: output height = (input height - 1) / stride + 1, width alike.
struct Convolution {
  Pass pass = Pass::kForward;
  Layout input;   ///< of the layer's input x; kDataGradient: of its gradient
  Layout output;  ///< of the layer's output y in kForward, else of its gradient dy
  int kernel = 1;
  int stride = 1;
  /// Any other window, which replaces kernel and stride.
  std::optional<TapGrid> window;
  /// Groups of channels, each convolved separately.
  int groups = 1;
  Activation activation = Activation::kNone;  ///< kForward: y = activation(x * w + bias)
  /// kDataGradient: the gradient is 0 where the mask (Operands::mask, usually the layer's input
  /// from a ReLU) is at most 0; NaN passes it through. Laid out like input.
  bool masked = false;
  Method method = Method::kAccurate;  ///< only decides which of candidates() is first
  Precision precision = Precision::kFloat32;
  bool tuned = false;  ///< a GPU's kernel
  /// Weight and bias gradients are added to the existing ones.
  bool accumulate = false;
};

/// Receives a weight gradient in parts, from several threads at once.
class GradientTaker {
 public:
  virtual ~GradientTaker() = default;
  /// `part`: elements [begin, begin + count) of the gradient.
  virtual void take(const float* part, std::size_t begin, std::size_t count) const = 0;
};

/// Addresses; null where a pass doesn't use them. Weights and their gradients are [O, I, kernel,
/// kernel] as in PyTorch, I per group. Nothing overlaps. Scratch needn't last between runs.
struct Operands {
  const float* source = nullptr;         ///< kForward: x; gradients: dy
  const float* weights = nullptr;        ///< all but kWeightGradient
  const float* x = nullptr;              ///< kWeightGradient, kGradients
  const float* bias = nullptr;           ///< kForward: [output channels]; null: none
  const float* mask = nullptr;           ///< kDataGradient with masked
  float* made = nullptr;                 ///< written: y, dx or, by kWeightGradient, its result
  float* weight_gradient = nullptr;      ///< kGradients: written
  const GradientTaker* taker = nullptr;  ///< kWeightGradient if gives_parts(): receives it instead
  float* bias_gradient = nullptr;        ///< with a weight gradient: written [O]; null: not wanted
  float* scratch = nullptr;              ///< 64-byte aligned, scratch_floats(), one per thread
  float* shared = nullptr;               ///< 64-byte aligned, shared_floats(), one for all threads
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  std::string name;  ///< the implementation, as named by candidates()
  virtual std::size_t scratch_floats() const { return 0; }
  virtual std::size_t shared_floats(int threads) const { return 0; }
  /// Number of parts that a team of that size runs in sequence, with a barrier between them.
  virtual int phases(int threads) const { return 1; }
  /// Whether Operands::taker can receive the weight gradient, each element once, in one phase.
  virtual bool gives_parts() const { return false; }
  virtual void run(const Operands& operands, int phase, Share share) const = 0;
  /// Runs all phases on one thread.
  void run(const Operands& operands) const {
    for (int phase = 0; phase < phases(1); ++phase) run(operands, phase, {});
  }
};

/// The implementations that can do it, by short names without space, comma or colon; never empty,
/// but for both gradients at once.
/// Each rounds differently. The first is the default, chosen from the shape and the machine's
/// vectors alone, never by timing, so that two processes compute the same bits.
std::vector<std::string> candidates(const Convolution& convolution);

/// \param implementation one of candidates(); empty: the first.
/// \throws std::invalid_argument for a name that candidates() does not list.
std::unique_ptr<Kernel> make_kernel(const Convolution& convolution,
                                    const std::string& implementation = "");

/// Whether one kernel for both gradients takes less time than one for each: they share the
/// transform of dy. The data gradient has the same bits.
bool gradients_together(const Convolution& convolution);

inline TapGrid window_of(const Convolution& c) {
  const Taps taps{.count = c.kernel, .stride = c.stride, .padding = c.kernel / 2};
  return c.window.value_or(TapGrid{taps, taps});
}

/// Operations in the roofline's count: 2 per tap, including taps on padding.
inline double flops(const Convolution& c) {
  const double passes = c.pass == Pass::kGradients ? 2 : 1;
  return passes * 2 * c.output.height * c.output.width * c.output.channels * c.input.channels *
         taps_of(window_of(c)) / c.groups;
}

// ---- Images.

/// to [columns][rows] = from [rows][columns] transposed: an image's planes to pixels, or back.
void turn(const float* from, std::size_t rows, std::size_t columns, float* to);

/// sums[c] (+)= factor times the sum over all pixels. A team shares the channels.
void channel_sums(const Layout& layout, const float* source, float factor, float* sums, Share share,
                  bool accumulate = false);

// ---- Elementwise functions of one or two operands.

/// "silu gradient".
const char* name_of(Function function);
/// The result may be an operand, if laid out alike.
void map(const MapArguments& map, Share share = {});
/// Copies `left` in any strides.
void copy(const MapArguments& map);

// ---- Functions of images and of rows. A team shares pools' channels, pixels, rows.

/// With `dy`, the gradient.
void pool(const PoolArguments& pool, Share share);
/// Sums of weighted inputs along rows and columns. A team shares the rows.
void resample(const ResampleArguments& resample, Share share);

// Group norms have three phases: a team shares the first and the last, one thread runs the second.

/// destination = (source - mean) * rstd * weight + bias. Sums are taken relative to the first
/// pixel, in float over 64 pixels and in double over those.
void group_norm(const NormArguments& norm, int phase, Share share);
void group_norm_gradient(const NormArguments& norm, int phase, Share share);

void layer_norm(const NormArguments& norm, Share share);
/// A team shares the rows, and for the gradients of weight and bias their elements.
void layer_norm_gradient(const NormArguments& norm, Share share);

/// to = exp(a) over its row's sum, or the logarithm of that.
/// With `b`, the gradient.
void softmax(const RowArguments& rows, Share share);

/// `lines` lines of `width` floats, and of bytes: value = least + byte * step.
struct QuantizedArguments {
  const float* values = nullptr;  ///< read by quantize
  float* made = nullptr;          ///< written by dequantize
  std::uint8_t* bytes = nullptr;
  float* ranges = nullptr;  ///< [lines][2]: least, step
  int lines = 1, width = 0;
};
/// A team shares the lines.
void quantize(const QuantizedArguments& lines, Share share);
void dequantize(const QuantizedArguments& lines, Share share);

/// The mean over all elements or, with `scale`, its gradient.
void squared_error(const SquaredErrorArguments& error);

// ---- The update: one pass over a stage's flat buffers, with the formulas of
// stages/optimizer_formulas-inl.h and stages/correction.cpp.

/// Doubles that an update of `count` weights needs between its steps.
std::size_t update_sums(const stages::UpdateNumbers& numbers, std::size_t count);

// All threads of a team finish a step before the next: is_finite(); update() if every share is
// finite, else keep(); then, after an update, one thread calls count_step().

bool is_finite(std::span<const float> gradient, Share share);
/// The largest magnitude; infinity if there is a NaN.
float largest(std::span<const float> values);
void update(const UpdateArguments& u, Share share);
/// For elements [begin, begin + count), whose gradient is at `gradient`; no update_sums().
void update_part(const UpdateArguments& u, const float* gradient, std::size_t begin,
                 std::size_t count);
/// Copies the weights from `from` to `to`; the state stays.
void keep(const UpdateArguments& u, Share share);
/// Counts Adam's step, advances the row of old weights and averages the weights' step length.
void count_step(const UpdateArguments& u);

// ---- What the machine can do.

/// FLOP/s of fused multiply-adds on registers alone, on this core at this time: the limit that
/// kernels are measured against. Best of five runs of about 0.2 ms.
double fma_peak();

/// The instruction set that the kernels use here, e.g. "AVX3".
std::string instruction_set();
/// Whether it has vectors (AVX2, AVX-512, NEON). Without them, LibTorch's operators are faster.
bool has_vectors();
/// Whether it has bfloat16 products: by tile registers (AMX).
bool has_bf16();

}  // namespace millrace::kernels
