// What the config says of the source and of what gives its frames targets.
#pragma once

#include <memory>
#include <optional>

#include "io/queue/frame_queue.h"
#include "io/queue/reader.h"
#include "io/queue/resizer.h"
#include "io/source/labels.h"
#include "io/source/source.h"
#include "stages/model_spec.h"
#include "tools/app/config/config.h"

namespace millrace::app {

io::SourceOptions source_options(const Config& config);
/// The labels in the file that task.labels names; none if it names no file. Throws ConfigError.
std::optional<io::Labels> configured_labels(const Config& config);
/// Takes the labels that users give during the run; null if they give none.
std::shared_ptr<io::LiveLabels> live_labels(const Config& config);
/// Gives targets to frames of `info`: masks for the part of the picture that `view` shows, or
/// another stream's frames of the size of `target`. Nothing if task names neither. Throws
/// ConfigError, io::SourceError.
io::Teller open_teller(const Config& config, const io::SourceInfo& info,
                       const io::ResizerOptions& view, const stages::ImageShape& target);
/// The view and the size of samples. Throws ConfigError if source.roi lies outside the picture.
io::ResizerOptions resizer_options(const Config& config, const io::SourceInfo& info);
/// One line if samples have another aspect ratio than the view; else "".
std::string squash_note(const Config& config, const io::SourceInfo& info);
/// Whether frames arrive, or are to be delivered, at the stream's own rate.
bool paced_live(const Config& config, const io::SourceInfo& info);
/// Without a limit.
io::ReaderOptions reader_options(const Config& config, const io::SourceInfo& info);
/// `live`: frames arrive at their own rate.
io::Drop drop_policy(const Config& config, bool live);

}  // namespace millrace::app
