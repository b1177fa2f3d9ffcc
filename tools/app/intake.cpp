#include "tools/app/intake.h"

#include <chrono>
#include <cmath>

#include "io/source/source_images.h"
#include "tools/app/assembly.h"

namespace millrace::app {
namespace {

io::Region region_of(const Config& config) {
  const std::vector<int>& roi = config.source.roi;
  return roi.empty() ? io::Region{} : io::Region{roi[0], roi[1], roi[2], roi[3]};
}

}  // namespace

io::SourceOptions source_options(const Config& config) {
  return {.uri = config.source.uri,
          .width = config.source.width,
          .height = config.source.height,
          .channels = config.source.channels,
          .fps = config.source.fps,
          .seed = config.source.seed,
          .max_pixels = config.source.max_pixels,
          .classes = config.task.kind == "label" && config.task.labels.empty()
                         ? config.task.classes
                         : std::vector<std::string>(),
          .reconnect = {
              .enabled = config.source.reconnect,
              .silence = std::chrono::milliseconds(std::llround(1e3 * config.source.silence_s))}};
}

std::optional<io::Labels> configured_labels(const Config& config) {
  const std::string& file = config.task.labels;
  if (file.empty() || told_live(config)) return std::nullopt;
  return check_key<io::LabelError>(config, "task.labels",
                                   [&] { return io::read_labels(file, config.task.classes); });
}

std::vector<std::string> class_names(const Config& config,
                                     const std::optional<io::Labels>& labels) {
  if (labels) return labels->classes();
  std::vector<std::string> folders;
  if (config.task.kind == "label" && config.task.labels.empty())
    folders = check_key<io::SourceError>(
        config, "source.uri", [&] { return io::folder_classes(source_options(config)); });
  return folders.empty() ? config.task.classes : folders;
}

io::ResizerOptions resizer_options(const Config& config, const io::SourceInfo& info) {
  const io::Region region = region_of(config);
  if (!io::lies_within(region, info.width, info.height)) {
    throw config.error(
        "source.roi", "does not lie within the source's " + io::size_text(info.width, info.height));
  }
  const io::Region view = io::clipped(region, info.width, info.height);
  return {.width = config.source.width ? config.source.width : view.width,
          .height = config.source.height ? config.source.height : view.height,
          .fit = io::fit_of(config.source.fit),
          .region = region};
}

std::string squash_note(const Config& config, const io::SourceInfo& info) {
  return io::squash_note(io::clipped(region_of(config), info.width, info.height),
                         config.source.width, config.source.height, io::fit_of(config.source.fit));
}

bool comes_live(const Config& config, const io::SourceInfo& info) {
  return config.source.pace == "live" || info.live;
}

io::ReaderOptions reader_options(const Config& config, const io::SourceInfo& info) {
  return {.paced = config.source.pace == "live" && !info.live,
          .loop = config.source.loop,
          .ahead = task_type(config.task.kind).target == TargetFrom::later_frame
                       ? config.task.horizon
                       : 0,
          .fps = info.fps};
}

io::Drop drop_policy(const Config& config, const io::SourceInfo& info) {
  const std::string& drop = config.source.drop;
  const bool newest = drop == "newest" || (drop == "auto" && comes_live(config, info));
  return newest ? io::Drop::newest : io::Drop::never;
}

}  // namespace millrace::app
