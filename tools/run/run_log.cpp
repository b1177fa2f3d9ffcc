#include "tools/run/run_log.h"

namespace millrace::tools {

void RunLog::predicted(const engine::SampleInfo&, int slot, float loss) {
  novelty_.see(loss);
  if (labels_) hits_.add(hit(slot) ? 1.0f : 0.0f);
  network_.add(loss);
  baseline_.add(mean_frame_.compare(trainer_.shown_target(slot)));
  last_slot_ = slot;
}

}  // namespace millrace::tools
