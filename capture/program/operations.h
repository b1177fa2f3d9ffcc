// Nodes made ready to run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/program/node.h"
#include "capture/program/program.h"

namespace millrace::program {

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
  capture::OperationInfo info;
};

/// "8x16x24".
std::string text_of(const kernels::Layout& layout);
/// "group norm 8x16x24 gradient".
std::string name_of(const Node& node);
/// "forward 16x64x64 -> 16x64x64 k5 s1 relu".
std::string describe(const kernels::Convolution& convolution);

/// For a team of so many threads. A LibTorch operator takes over what it needs of its call.
std::unique_ptr<Prepared> prepare(const Node& node, int threads);

}  // namespace millrace::program
