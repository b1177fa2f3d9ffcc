// Which formulas the update kernel computes. For nvcc, too, which need not see LibTorch.
#pragma once

namespace millrace::stages {

enum class UpdateRule { sgd, rmsprop, adam };
enum class CorrectionRule { none, discrepancy, weight_prediction, gap_aware, dc_asgd };

}  // namespace millrace::stages
