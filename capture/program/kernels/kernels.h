// The compute kernels of a training step on one core: float32, NHWC. Needs no LibTorch.
//
// A Convolution is prepared once (make_kernel) and run every step on the caller's memory. run()
// neither allocates nor locks, and one implementation gives the same bits on one thread and on a
// team. All is reentrant: threads may share a Kernel if each has its own scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/program/kernels/function.h"
#include "capture/program/kernels/team.h"
#include "stages/update_numbers.h"

namespace millrace::kernels {

/// Where an image lies: pixel (y, x) at `y * row() + x * channels` from its first one, as
/// LibTorch's channels_last.
struct Layout {
  int height = 0, width = 0, channels = 0;

  std::size_t row() const { return std::size_t(width) * channels; }  ///< in floats
  std::size_t floats() const { return std::size_t(height) * row(); }
  bool operator==(const Layout&) const = default;
};

enum class Pass { kForward, kDataGradient, kWeightGradient };
enum class Activation { kNone, kRelu, kSigmoid };

/// Which kernels a convolution may choose from.
enum class Method {
  kAccurate,  ///< those whose rounding error is at most twice a direct sum's in float32
  kFast,      ///< also those with errors to 3e-5 of the result's norm
  kDirect,    ///< sums of products of pixels and weights alone
};
inline const char* const kMethodNames[] = {"accurate", "fast", "direct"};

/// Of a product's two numbers. Weights, sums and updates are float32 always.
enum class Precision { kFloat32, kTf32, kBf16 };
inline const char* const kPrecisionNames[] = {"float32", "tf32", "bf16"};

/// What users say of how a network's numbers are made.
struct Numerics {
  Method method = Method::kAccurate;
  Precision precision = Precision::kFloat32;
  bool tuned = false;  ///< a GPU's kernels: chosen by timing, else by shape alone
};

/// A window's taps along one side: `dilation` inputs apart, over an input with `padding` zeros
/// before and after it.
struct Taps {
  int count = 1, stride = 1, padding = 0, dilation = 1;
  int outputs(int inputs) const {
    return (inputs + 2 * padding - dilation * (count - 1) - 1) / stride + 1;
  }
};
struct TapGrid {
  Taps rows, columns;
};

/// One pass of a 2D convolution. As a rule its kernel is an odd square with kernel / 2 zeros around
/// the input: output height = (input height - 1) / stride + 1, width alike.
struct Convolution {
  Pass pass = Pass::kForward;
  Layout input;   ///< of the layer's input x, or of its gradient in kDataGradient
  Layout output;  ///< of the layer's output y in kForward, of its gradient dy elsewhere
  int kernel = 1;
  int stride = 1;
  /// Any other window; kernel and stride say nothing then.
  std::optional<TapGrid> window;
  /// Parts that the channels of both sides fall into, each convolved by itself.
  int groups = 1;
  Activation activation = Activation::kNone;  ///< kForward: y = activation(x * w + bias)
  /// kDataGradient: the gradient is 0 where the mask (Operands::mask, as a rule the layer's input,
  /// which a ReLU made) is at most 0; a NaN lets it through. The mask has input's layout.
  bool masked = false;
  Method method = Method::kAccurate;  ///< says which of candidates() is first, no more
  Precision precision = Precision::kFloat32;
  bool tuned = false;  ///< a GPU's kernel
  /// kWeightGradient: add to the gradients that are there instead of overwriting them.
  bool accumulate = false;
};

/// Is given a weight's gradient part by part, by several threads at once.
class GradientTaker {
 public:
  virtual ~GradientTaker() = default;
  /// Elements [begin, begin + count) of the gradient, which lie at `part`.
  virtual void take(const float* part, std::size_t begin, std::size_t count) const = 0;
};

/// Addresses of images and numbers; null where a pass does not use them. Weights and their
/// gradients are [O, I, kernel, kernel] as PyTorch orders them, I in a group. Nothing overlaps.
/// Scratch and shared need not last between runs.
struct Operands {
  const float* source = nullptr;         ///< kForward: x; both gradients: dy
  const float* weights = nullptr;        ///< kForward, kDataGradient
  const float* x = nullptr;              ///< kWeightGradient
  const float* bias = nullptr;           ///< kForward: [output channels]; null: none
  const float* mask = nullptr;           ///< kDataGradient with masked
  float* made = nullptr;                 ///< written: y, dx or the weights' gradient
  const GradientTaker* taker = nullptr;  ///< kWeightGradient that gives_parts(): gets it instead
  float* bias_gradient = nullptr;        ///< kWeightGradient: written [O]; null: not wanted
  float* scratch = nullptr;  ///< 64-byte aligned, scratch_floats(), of each thread's own
  float* shared = nullptr;   ///< 64-byte aligned, shared_floats(), one for all threads
};

/// A pass made ready.
class Kernel {
 public:
  virtual ~Kernel() = default;
  std::string name;  ///< the implementation, as candidates() names it
  virtual std::size_t scratch_floats() const { return 0; }
  virtual std::size_t shared_floats(int threads) const { return 0; }
  /// How many parts a team of so many threads runs one after another: all have done one before any
  /// begins the next.
  virtual int phases(int threads) const { return 1; }
  /// Whether Operands::taker may have the weights' gradient, each element once, in one phase.
  virtual bool gives_parts() const { return false; }
  virtual void run(const Operands& operands, int phase, Share share) const = 0;
  /// On one thread.
  void run(const Operands& operands) const {
    for (int phase = 0; phase < phases(1); ++phase) run(operands, phase, {});
  }
};

/// The implementations that can do it, by short names that hold no space, comma or colon; never
/// empty. Each rounds differently. The first is taken where none is named: chosen from the shape
/// and the machine's vectors alone, never by timing, so that two processes compute the same bits.
std::vector<std::string> candidates(const Convolution& convolution);

/// \param implementation one of candidates(); empty: the first.
/// \throws std::invalid_argument for a name that candidates() does not list.
std::unique_ptr<Kernel> make_kernel(const Convolution& convolution,
                                    const std::string& implementation = "");

TapGrid window_of(const Convolution& convolution);
inline int taps_of(const TapGrid& window) {
  return window.rows.count * window.columns.count;
}

/// Operations that the limit counts: 2 for each tap, those on the padding too.
double flops(const Convolution& convolution);

// ---- Images.

/// From NCHW, [channels][height][width] without gaps, and back.
void from_planes(const float* planes, float* destination, const Layout& to);
void to_planes(const float* source, const Layout& from, float* planes);

/// sums = factor times the sum over all pixels, a number a channel. A team shares the channels.
void channel_sums(const Layout& layout, const float* source, float factor, float* sums,
                  Share share);

/// Mean squared error over all elements and its gradient; `scale` multiplies the gradient alone.
/// \param gradient of the loss by the prediction, or, with through_sigmoid, by what the sigmoid
/// that
///   made the prediction was given. Null: not wanted.
/// \returns the loss: a row's squares summed in float, the rows in double.
float mse(const Layout& layout, const float* prediction, const float* target, float* gradient,
          bool through_sigmoid, float scale = 1);

// ---- Functions of each element, of one or two operands, either of which may be spread over the
// other.

/// "silu gradient".
const char* name_of(Function function);

/// Where an operand lies: element k of row r at `r * row + k`, or, if not `each`, at `r * row`.
struct Operand {
  std::size_t row = 0;
  bool each = true;
};

/// made[r][k] = function(left[r][k], right[r][k]).
struct Map {
  Function function = Function::add;
  float numbers[3] = {};
  std::size_t rows = 1, row = 0;  ///< of the result, which has no gaps
  Operand left, right;
};

/// \param right null for a function of one. \param made may be either, if it lies alike.
void map(const Map& map, const float* left, const float* right, float* made, Share share = {});

// ---- Pooling. A team shares the channels.

struct Pool {
  Layout input, output;
  TapGrid window;
  bool largest = false;      ///< of a window, the first if there are several; else its mean
  bool counts_zeros = true;  ///< the mean: what lies outside counts as zeros, else not at all
  float divisor = 0;         ///< of the sum, if not the number of taps
};

void pool(const Pool& pool, const float* x, float* y, Share share);
/// \param x read for the largest alone, which a gradient goes to.
void pool_gradient(const Pool& pool, const float* dy, const float* x, float* dx, Share share);

// ---- Group norm of an image; instance norm is one channel a group. Batch norm with the statistics
// of earlier samples is that, too, with nothing to measure.

struct GroupNorm {
  std::size_t pixels = 0;
  int channels = 0, groups = 1;
  double eps = 0;
  bool frozen = false;  ///< mean and variance are given, a channel a group
  /// Doubles that each call needs beside.
  std::size_t scratch() const { return 4 * std::size_t(channels); }
};

/// Images are [pixels][channels], the rest [channels] or [groups].
struct GroupNormOperands {
  const float* gradient = nullptr;  ///< of the output: read by the gradient
  const float* source = nullptr;    ///< of the norm: read
  const float* weight = nullptr;    ///< [channels], read; null: 1
  const float* bias = nullptr;      ///< [channels], read by the norm; null: 0
  float* mean = nullptr;            ///< [groups], made by the norm; if frozen, read by both
  float* rstd = nullptr;            ///< likewise: 1 / sqrt(variance + eps); if frozen, the variance
  float* destination = nullptr;     ///< written: output, or the source's gradient (null: unwanted)
  float* weight_gradient = nullptr;  ///< [channels], written by the gradient; null: unwanted
  float* bias_gradient = nullptr;    ///< likewise
  double* scratch = nullptr;         ///< GroupNorm::scratch(), the same in every phase
};

// In three phases, as Kernel has them: a team shares the first and the last, the second is one
// thread's alone.

/// destination = (source - mean) * rstd * weight + bias. Sums are taken in float over 64 pixels,
/// about the first pixel's values, and in double over those.
void group_norm(const GroupNorm& norm, const GroupNormOperands& operands, int phase, Share share);
void group_norm_gradient(const GroupNorm& norm, const GroupNormOperands& operands, int phase,
                         Share share);

// ---- Functions of each row of a matrix [rows][row]. A team shares the rows.

struct Matrix {
  std::size_t rows = 0, row = 0;
};

/// destination = (source - mean) * rstd * weight + bias, with weight and bias [row] and a mean and
/// rstd a row. Operands as a group norm's, without scratch.
void layer_norm(const Matrix& matrix, double eps, const GroupNormOperands& operands, Share share);
/// A team shares the rows, and for the gradients of weight and bias their elements.
void layer_norm_gradient(const Matrix& matrix, const GroupNormOperands& operands, Share share);

/// made = exp(source) over its row's sum, or the logarithm of that.
void softmax(const Matrix& matrix, bool logarithm, const float* source, float* made, Share share);
/// \param made by softmax().
void softmax_gradient(const Matrix& matrix, bool logarithm, const float* gradient,
                      const float* made, float* destination, Share share);

// ---- The update: one pass over a stage's flat buffers, the formulas of
// stages/optimizer_formulas-inl.h and stages/correction.cpp.

/// Flat buffers of `count` floats, but for a share's, which are parts of such.
struct UpdateOperands {
  const float* from = nullptr;      ///< weights read
  float* to = nullptr;              ///< weights written; may be `from`
  const float* gradient = nullptr;  ///< read
  stages::UpdateState state;
  stages::CorrectionMemory memory;
  double* sums = nullptr;  ///< update_sums()
  std::size_t count = 0;
  std::size_t row = 0;  ///< of the ring of old weights, in floats
};
/// Numbers that an update of so many weights needs room for between its steps.
std::size_t update_sums(const stages::UpdateNumbers& numbers, std::size_t count);

// All threads of a team take one step before any takes the next: is the gradient finite; if so in
// every share, update, else keep; then one of them counts the step, unless it was kept.

bool is_finite(const UpdateOperands& operands, Share share);
/// The largest magnitude; infinity if there is a NaN.
float largest(std::span<const float> values);
/// \param rate multiplies numbers.lr.
void update(const stages::UpdateNumbers& numbers, const UpdateOperands& operands, double rate,
            Share share);
/// The same of elements [begin, begin + count) alone, whose gradient lies at `gradient`: without
/// update_sums().
void update_part(const stages::UpdateNumbers& numbers, const UpdateOperands& operands, double rate,
                 const float* gradient, std::size_t begin, std::size_t count);
/// `to` takes `from`'s weights, the state stays.
void keep(const UpdateOperands& operands, Share share);
/// Adam's step, the row of old weights, the mean of a weight's way.
void count_step(const stages::UpdateNumbers& numbers, const UpdateOperands& operands);

// ---- What the machine can do.

/// FLOP/s of fused multiply-adds on registers alone, of this core in these milliseconds: the limit
/// that kernels are measured against. Best of `repeats` runs of about 0.2 ms.
double fma_peak(int repeats = 5);

/// The instruction set that the kernels run with here, e.g. "AVX3".
std::string instruction_set();
/// Whether it has vectors (AVX2, AVX-512, NEON). Without, LibTorch's operators are faster.
bool has_vectors();
/// Whether its products can be bfloat16's: by tile registers (AMX).
bool has_bf16();

}  // namespace millrace::kernels
