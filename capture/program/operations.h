// Nodes made ready to run.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "capture/program/node.h"
#include "capture/program/program.h"

namespace millrace::program {

/// A large weight's gradient that may wait for the update, which makes it part by part and needs no
/// memory for it. What it is made of is kept aside until then.
class LateGradient {
 public:
  virtual ~LateGradient() = default;
  /// Keeps aside what it is made of. One thread's.
  virtual void keep() = 0;
  /// Where it lies once it was made.
  virtual std::span<float> place() const = 0;
  /// Whether it holds neither infinity nor NaN, by a bound of its sums: false may be wrong.
  virtual bool surely_finite() const = 0;
  /// Memory for a thread while it makes it, which may be another's for the program's next one.
  virtual std::span<float> scratch(int thread) const = 0;
  /// Makes it, one thread's share; `taker` gets it, or, if null, its place.
  virtual void make(const kernels::GradientTaker* taker, kernels::Share share,
                    float* scratch) const = 0;
};

/// One prepared call, which is told where its memory lies once all of a program is known.
class Prepared {
 public:
  virtual ~Prepared() = default;
  /// What it needs while it runs.
  virtual std::size_t scratch_bytes() const { return 0; }
  /// Takes the addresses of `node`'s tensors as they are from now on.
  virtual void bind(const Node& node, char* scratch) = 0;
  /// Its parts, one after another: whether a team shares the part, or its first thread does it
  /// alone.
  virtual std::vector<bool> phases() const { return {false}; }
  virtual void run(int phase, kernels::Share share) = 0;
  /// What may be kept instead of run(), and made later; null: nothing.
  virtual LateGradient* late() { return nullptr; }
  /// Of an update: has its next run make these, which must outlive that, and need not lie where
  /// they belong. Returns false for what can't, and changes nothing then.
  virtual bool take(std::span<LateGradient* const> gradients) { return false; }
  capture::OperationInfo info;
};

/// "8x16x24".
std::string text_of(const kernels::Layout& layout);
/// "group norm 8x16x24 gradient".
std::string name_of(const Node& node);
/// "forward 16x64x64 -> 16x64x64 k5 s1 relu".
std::string describe(const kernels::Convolution& convolution);

/// For a team of so many threads. A LibTorch operator takes over what it needs of its call.
/// \param may_wait nothing else in the program reads or writes the weights' gradient it makes.
std::unique_ptr<Prepared> prepare(const Node& node, int threads, bool may_wait = false);

}  // namespace millrace::program
