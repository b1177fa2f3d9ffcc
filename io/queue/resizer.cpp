#include "io/queue/resizer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace millrace::io {
namespace {

constexpr int kNoticedPercent = 2;

/// `side` times numerator / denominator, rounded, at least 1.
int scaled(int side, int numerator, int denominator) {
  const std::int64_t product = std::int64_t(side) * numerator;
  return std::max(1, int((product + denominator / 2) / denominator));
}

/// The largest centred part of `outer` with aspect ratio width : height.
Region centred(const Region& outer, int width, int height) {
  Region inner = outer;
  if (std::int64_t(outer.width) * height > std::int64_t(outer.height) * width)
    inner.width = std::min(outer.width, scaled(outer.height, width, height));
  else
    inner.height = std::min(outer.height, scaled(outer.width, height, width));
  inner.x += (outer.width - inner.width) / 2;
  inner.y += (outer.height - inner.height) / 2;
  return inner;
}

}  // namespace

const std::vector<std::string>& fit_names() {
  static const std::vector<std::string> names = {"stretch", "crop", "pad"};
  return names;
}

Fit fit_of(const std::string& name) {
  const auto& names = fit_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::invalid_argument("unknown fit \"" + name + "\"");
  return Fit(found - names.begin());
}

Region clipped(const Region& region, int width, int height) {
  if (region.whole()) return {0, 0, width, height};
  const int x = std::clamp(region.x, 0, width - 1), y = std::clamp(region.y, 0, height - 1);
  return {x, y, std::min(region.width, width - x), std::min(region.height, height - y)};
}

bool lies_within(const Region& region, int width, int height) {
  return region.whole() || clipped(region, width, height) == region;
}

Placement place(const Region& view, int width, int height, Fit fit) {
  const Region all{0, 0, width, height};
  return {fit == Fit::crop ? centred(view, width, height) : view,
          fit == Fit::pad ? centred(all, view.width, view.height) : all};
}

std::string squash_note(const Region& view, int width, int height, Fit fit) {
  if (fit != Fit::stretch || width <= 0 || height <= 0) return "";
  const std::int64_t across = std::int64_t(view.width) * height;
  const std::int64_t down = std::int64_t(view.height) * width;
  const std::int64_t apart = across > down ? across - down : down - across;
  if (100 * apart <= kNoticedPercent * std::max(across, down)) return "";
  return "frames of " + size_text(view.width, view.height) + " are squashed to " +
         size_text(width, height) + "; source.fit = \"crop\" or \"pad\" keeps their shape";
}

const Frame& Resizer::fit(const Frame& frame) {
  const Region view = clipped(options_.region, frame.width, frame.height);
  if (options_.width <= 0) options_.width = view.width;
  if (options_.height <= 0) options_.height = view.height;
  const Region all{0, 0, frame.width, frame.height};
  if (view == all && all == Region{0, 0, options_.width, options_.height}) return frame;
  scaled_.date_like(frame);
  scaled_.label = frame.label;
  scaled_.reshape(options_.width, options_.height, frame.channels);
  const Placement placement = place(view, options_.width, options_.height, options_.fit);
  const Region &from = placement.from, &to = placement.to;
  if (to.width < scaled_.width || to.height < scaled_.height) std::ranges::fill(scaled_.pixels, 0);
  if (from.width != to.width || from.height != to.height) {
    scale(frame, placement);
    return scaled_;
  }
  const std::size_t row = std::size_t(to.width) * frame.channels;
  const auto at = [](int y, int x, const Frame& of) {
    return (std::size_t(y) * of.width + x) * of.channels;
  };
  for (int y = 0; y < to.height; ++y) {
    std::memcpy(&scaled_.pixels[at(to.y + y, to.x, scaled_)],
                &frame.pixels[at(from.y + y, from.x, frame)], row);
  }
  return scaled_;
}

}  // namespace millrace::io
