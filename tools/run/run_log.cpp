#include "tools/run/run_log.h"

#include "tools/run/live_view.h"

namespace millrace::tools {

void RunLog::predicted(const engine::SampleInfo& info, int slot, float loss) {
  if (video_) video_->predicted(info, slot);
  if (page_) page_->predicted(info, slot);
  novelty_.see(loss);
  if (labels_) hits_.add(hit(slot) ? 1.0f : 0.0f);
  network_.add(loss);
  const float baseline = mean_frame_.compare(trainer_.shown_target(slot));
  baseline_.add(baseline);
  if (lines_) lines_->predicted(info, loss, baseline);
  last_slot_ = slot;
}

}  // namespace millrace::tools
