#include "tools/app/rate_watch.h"

#include <cmath>  // abs

#include "engine/format.h"

namespace millrace::app {
namespace {

constexpr double kChange = 0.1;  // of the rate, from which it is told anew

}  // namespace

std::string RateWatch::look() {
  const double set = monitor_.fps();
  if (set > 0 && set != told_) return "";  // the source's own, or the config's
  const double now = reader_.fps();
  if (now <= 0 || (set > 0 && std::abs(now - told_) <= kChange * told_)) return "";
  told_ = now;
  monitor_.set_fps(now);
  return engine::format(
      "names no rate; its time stamps show %.4g frames a second, which is F from now on", now);
}

}  // namespace millrace::app
