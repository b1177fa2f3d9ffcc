#include <stdexcept>

#include "io/plot/plot.h"
#include "io/queue/resizer.h"
#include "io/queue/targets.h"
#include "io/source/source_kinds.h"

namespace millrace::io {
namespace {

SourceError no_source(const SourceOptions& options) {
  return source_error(options,
                      "this build has no GStreamer and no OpenCV; only synth:shapes can be read");
}

[[noreturn]] void no_plot() {
  throw std::runtime_error("this build has no OpenCV: no PNG is written");
}

}  // namespace

std::unique_ptr<Source> open_file(const SourceOptions& options) {
  throw no_source(options);
}
std::unique_ptr<Source> open_stream(const SourceOptions& options) {
  throw no_source(options);
}
void check_images(const SourceOptions&) {}
std::unique_ptr<Source> open_images(const SourceOptions& options) {
  throw no_source(options);
}

std::string opencv_version() {
  return "";
}

void Resizer::scale(const Frame&, const Placement& placement) {
  throw std::runtime_error("this build has no OpenCV: a frame of " +
                           size_text(placement.from.width, placement.from.height) +
                           " can't be rescaled to " +
                           size_text(placement.to.width, placement.to.height));
}

void require_masks(const std::string& folder) {
  throw MaskError(folder + ": this build has no OpenCV to decode masks with");
}
Teller mask_teller(const std::string& folder, int, const ResizerOptions&, int, int) {
  require_masks(folder);
  return {};
}

void write_chart(const Chart&, const std::string&) {
  no_plot();
}
void write_strip(const std::string&, const std::vector<Panel>&, const std::string&) {
  no_plot();
}
std::array<int, 4> first_of_three(int strip_width, int strip_height) {
  return {0, 0, strip_width, strip_height};
}
void write_below(const Frame&, int, const std::string&, Frame&) {
  no_plot();
}

}  // namespace millrace::io
