// Which formula the update kernel computes. For nvcc, too, which need not see LibTorch.
#pragma once

namespace millrace::stages {

enum class UpdateRule { sgd, rmsprop, adam };

}  // namespace millrace::stages
