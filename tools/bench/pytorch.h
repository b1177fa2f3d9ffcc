// PyTorch as a peer of a benchmark's arms.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "stages/model_spec.h"

namespace millrace::bench {

/// A Python with torch in it, asked over pipes; it keeps what it has built. Thread-bound.
class PyTorch {
 public:
  /// Throws std::runtime_error if `python` can't be started.
  explicit PyTorch(const std::string& python);
  ~PyTorch();
  PyTorch(const PyTorch&) = delete;
  PyTorch& operator=(const PyTorch&) = delete;

  /// Median milliseconds of a training step of `model`, a partime-cnn or resnet18, on one frame of
  /// `size`; NaN where PyTorch can't. A mode that begins three times slower than another is not
  /// measured on. `mode`: eager, channels_last or compile.
  double step_ms(const stages::ModelSpec& model, std::int64_t size, const std::string& mode,
                 int threads, double seconds);

 private:
  int process_ = 0;
  std::FILE *to_ = nullptr, *from_ = nullptr;
};

}  // namespace millrace::bench
