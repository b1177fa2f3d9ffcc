// How a run takes frames from its source.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "io/queue/frame_queue.h"
#include "io/queue/reader.h"
#include "io/queue/resizer.h"
#include "io/source/labels.h"
#include "io/source/live_labels.h"
#include "io/source/source.h"
#include "tools/app/config/config.h"

namespace millrace::app {

io::SourceOptions source_options(const Config& config);
/// The classes that task.labels tells; none where it names no file. Throws ConfigError.
std::optional<io::Labels> configured_labels(const Config& config);
/// Those that are told meanwhile; null where none are.
std::shared_ptr<io::LiveLabels> live_labels(const Config& config);
/// What tells frames of `info` their targets, at `view` for what is as large as they and at
/// `target`; null where they bring them. Throws ConfigError, io::SourceError.
std::unique_ptr<io::Teller> open_teller(const Config& config, const io::SourceInfo& info,
                                        const io::ResizerOptions& view,
                                        const stages::ImageShape& target);
using SourceOpener = std::function<std::unique_ptr<io::Source>()>;
/// Opens `own`, or the config's source where that is empty. Throws io::SourceError.
std::unique_ptr<io::Source> open_source(const Config& config, const SourceOpener& own);
/// The view and the size of samples. Throws ConfigError if source.roi lies outside the picture.
io::ResizerOptions resizer_options(const Config& config, const io::SourceInfo& info);
/// One line if samples have not the view's shape; else "".
std::string squash_note(const Config& config, const io::SourceInfo& info);
/// Whether frames come, or are to be given, at the stream's own rate.
bool paced_live(const Config& config, const io::SourceInfo& info);
/// Without a limit.
io::ReaderOptions reader_options(const Config& config, const io::SourceInfo& info);
/// `live`: frames come at their own rate.
io::Drop drop_policy(const Config& config, bool live);
/// Frames that may wait.
int queue_capacity(const Config& config, io::Drop drop);

}  // namespace millrace::app
