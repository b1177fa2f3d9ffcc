#include "tools/app/given_frames.h"

#include "io/queue/planar.h"
#include "tools/app/config/task.h"

namespace millrace::app {
namespace {

std::unique_ptr<io::Source> told_source(const Config& config) {
  const TaskType& task = task_type(config.task.kind);
  if (task.gives != stages::Gives::picture && task.target != TargetFrom::label)
    throw config.error("task.kind", task.name + ": give (frame, target) pairs");
  std::optional<io::Labels> labels = configured_labels(config);
  std::unique_ptr<io::Source> source = io::open_source(source_options(config));
  return labels ? io::with_teller(std::move(source), io::teller_of(*std::move(labels)))
                : std::move(source);
}

}  // namespace

GivenFrames::GivenFrames(const Config& config)
    : config_(config), intake_(config_, [this] { return told_source(config_); }) {
  intake_.start();
}

std::optional<GivenFrame> GivenFrames::next(std::chrono::milliseconds patience) {
  const bool drained = intake_.queue.drained();  // asked first: a frame may come between
  io::Frame* const frame = intake_.queue.pop(drained ? std::chrono::milliseconds(0) : patience);
  if (!frame) {
    if (drained) {
      over_ = true;
      intake_.stop();
      const std::string error = intake_.error();
      if (!error.empty()) throw io::SourceError(error);
    }
    return std::nullopt;
  }
  const io::Frame& fit = intake_.resizer.fit(*frame);
  GivenFrame given{
      {fit.channels, fit.height, fit.width}, std::vector<float>(fit.bytes()), frame->label};
  io::to_planar(fit, given.input.data());
  intake_.queue.release(frame);
  return given;
}

}  // namespace millrace::app
