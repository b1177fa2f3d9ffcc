// Ridge regression of frames' classes on their features, in closed form.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace millrace::app {

/// Solved for as many unknowns as there are frames. Classes weigh the same. Each feature counts by
/// its deviation within the classes: what changes while the class stays says little about it.
/// Thread-bound.
class Ridge {
 public:
  /// `features` [n,f], float; `labels`: a class for each frame; `bias`: a bias takes up the mean.
  Ridge(const at::Tensor& features, const std::vector<std::int64_t>& labels, std::int64_t classes,
        bool bias);

  /// The scores of `rows` [m] if these were left out: [m,classes], double.
  at::Tensor without(const at::Tensor& rows) const;
  /// What makes the softmax of the scores as sure as it may be: each frame is scored as if it were
  /// left out.
  double sharpness() const;
  /// Of the linear layer: [classes,f] and [classes], float. `scores`: a class without an example is
  /// less likely than any other; else its output is 0.
  at::Tensor weight(double sharpness) const;
  at::Tensor bias(const at::Tensor& weight, double sharpness, bool scores) const;

 private:
  const at::Tensor labels_;        ///< [n,1]
  at::Tensor target_;              ///< [n,classes]
  at::Tensor known_;               ///< [classes]: whether there is an example
  double taught_ = 0;              ///< classes with examples
  at::Tensor shares_;              ///< [n]: the frames' weights, which sum to 1
  at::Tensor mean_, rates_;        ///< [f], float: subtracted, then multiplied
  at::Tensor scaled_;              ///< [n,f], float
  at::Tensor solution_, inverse_;  ///< [n,classes], [n,n]
};

}  // namespace millrace::app
