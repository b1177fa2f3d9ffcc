#include "tools/app/outputs/status_line.h"

#include <algorithm>  // max
#include <cstdio>     // the line

namespace millrace::app {

std::string StatusLine::text() {
  const engine::Reading r = trainer_.monitor().read();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  const std::int64_t trained = trainer_.trained();
  char line[320];
  std::snprintf(
      line, sizeof line,
      "frame %lld  %.1f fps  %s  latency %.0f/%.0f ms  dropped %lld  loss %.4f (mean frame %.4f)",
      static_cast<long long>(before_ + trained),
      double(trained - shown_) / std::max(1e-9, seconds - shown_at_),
      engine::rule_text(r, real_time_.verdict(r)).c_str(), r.latency_p50, r.latency_p99,
      static_cast<long long>(queue_.dropped()), log_.network().recent(), log_.baseline().recent());
  shown_ = trained;
  shown_at_ = seconds;
  std::string text = line;
  const std::int64_t every = overload_.train_every(),
                     replayed = trainer_.monitor().tally().counts().replayed;
  if (replayed > 0) text += "  replayed " + std::to_string(replayed);
  if (every > 1) text += "  1 in " + std::to_string(every) + " learned";
  return text;
}

}  // namespace millrace::app
