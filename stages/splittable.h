// Layers that ranks can share, by channels.
#pragma once

#include <memory>

#include "stages/layer.h"

namespace millrace::stages {

/// A layer that is a matrix between channels: a convolution, a linear layer.
class Splittable {
 public:
  virtual ~Splittable() = default;
  /// Makes one of `ways` equal parts of the output's channels of all of the input; null: there are
  /// none.
  virtual std::unique_ptr<Layer> column(int ways) const = 0;
  /// Makes a share of all of the output of one of `ways` equal parts of the input's channels, with
  /// no bias where that is not defined; null: there are none.
  virtual std::unique_ptr<Layer> row(int ways) const = 0;
};

/// A layer that treats each channel alone: any part of its input gives that part of its output.
class ByChannel {
 public:
  virtual ~ByChannel() = default;
};

}  // namespace millrace::stages
