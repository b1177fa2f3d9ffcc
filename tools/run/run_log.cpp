#include "tools/run/run_log.h"

#include <algorithm>

namespace millrace::tools {
namespace {

template <class Number>
std::size_t largest(const Number* numbers, std::size_t count) {
  return std::size_t(std::max_element(numbers, numbers + count) - numbers);
}

}  // namespace

void RunLog::predicted(const engine::SampleInfo& info, int slot, float loss) {
  last_slot_ = slot;
  if (!input_.empty()) {
    std::copy_n(trainer_.shown_input(slot), input_.size(), input_.begin());
    std::copy_n(trainer_.shown_target(slot), target_.size(), target_.begin());
    std::copy_n(trainer_.prediction(slot), prediction_.size(), prediction_.begin());
  }
  if (!info.has_target) return;
  novelty_.see(loss);
  if (labels_) count_hits(slot);
  network_.add(loss);
  baseline_.add(mean_frame_.compare(trainer_.shown_target(slot)));
}

void RunLog::keep_pictures(std::size_t inputs) {
  input_.resize(inputs);
  target_.resize(trainer_.target_elements());
  prediction_.resize(trainer_.target_elements());
}

const float* RunLog::input() const {
  return input_.empty() ? trainer_.shown_input(last_slot_) : input_.data();
}

const float* RunLog::target() const {
  return input_.empty() ? trainer_.shown_target(last_slot_) : target_.data();
}

const float* RunLog::prediction() const {
  return input_.empty() ? trainer_.prediction(last_slot_) : prediction_.data();
}

void RunLog::count_hits(int slot) {
  const std::size_t classes = trainer_.target_elements();
  const std::size_t truth = largest(trainer_.shown_target(slot), classes);
  hits_.add(largest(trainer_.prediction(slot), classes) == truth ? 1.0f : 0.0f);
  majority_hits_.add(largest(class_counts_.data(), classes) == truth ? 1.0f : 0.0f);
  ++class_counts_[truth];
}

}  // namespace millrace::tools
