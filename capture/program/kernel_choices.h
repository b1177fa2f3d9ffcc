// Which implementation serves which convolution.
#pragma once

#include <map>     // choices
#include <mutex>   // several stages
#include <string>  // names

#include "capture/program/kernels/kernels.h"

namespace millrace::program {

/// Chosen by timing when a convolution is first met, and then kept, since another kernel rounds
/// differently: a run that goes on repeats to the bit only with the choices that it began with.
/// Thread-safe.
class KernelChoices {
 public:
  /// The implementation of `convolution`.
  std::string choose(const kernels::Convolution& convolution);

  /// "convolution=implementation" for each choice made so far, joined by ";".
  std::string text() const;
  /// Takes choices from what text() gave; those made already stay. Choices that this machine can't
  /// follow are dropped when they are met. Throws std::invalid_argument for a text that is none.
  void take(const std::string& text);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> chosen_;
};

/// "forward 16x64x64 -> 16x64x64 k5 s1 relu".
std::string describe(const kernels::Convolution& convolution);

}  // namespace millrace::program
