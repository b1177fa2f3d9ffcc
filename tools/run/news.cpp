#include "tools/run/news.h"

#include <cmath>   // pow
#include <cstdio>  // lines

namespace millrace::tools {

void News::tell(Progress& progress) {
  tell_of_roll_backs(progress);
  tell_of_the_source(progress);
  tell_of_events(progress);
}

void News::tell_of_events(Progress& progress) {
  const std::int64_t begun = novelty_.events() - events_;  // first: an event counts before it is on
  const bool now = novelty_.in_event();
  if (begun == 0 && now == in_event_) return;
  progress.finish();
  if (begun > 1) std::fprintf(stderr, "unexpected: %lld events\n", static_cast<long long>(begun));
  if (begun > 0)
    std::fprintf(stderr, "unexpected: since frame %lld\n",
                 static_cast<long long>(novelty_.event_began()));
  if (!now) {
    std::fprintf(stderr, "usual again; the loss had been %.1f deviations up\n",
                 novelty_.event_peak());
  }
  events_ += begun;
  in_event_ = now;
}

void News::tell_of_the_source(Progress& progress) {
  const bool connected = health_.connected.load();
  if (connected == connected_) return;
  connected_ = connected;
  progress.finish();
  if (connected) {
    std::fprintf(stderr, "source: back after %lld attempts\n",
                 static_cast<long long>(health_.attempts.load()));
  } else {
    std::fprintf(stderr, "source: away: %s; the weights wait\n", health_.last_error().c_str());
  }
}

void News::tell_of_roll_backs(Progress& progress) {
  if (guard_.roll_backs() == roll_backs_) return;
  roll_backs_ = guard_.roll_backs();
  progress.finish();
  std::fprintf(stderr,
               "guard: at frame %lld the loss was %.4g (median %.4g): back to the last good "
               "weights, rate x %.3g\n",
               static_cast<long long>(guard_.last_sample()), guard_.last_loss(),
               guard_.last_median(), std::pow(engine::LossGuard::kSlower, double(roll_backs_)));
}

}  // namespace millrace::tools
