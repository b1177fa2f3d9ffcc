#include "tools/app/given_frames.h"

#include "io/queue/planar.h"
#include "tools/app/config/task.h"
#include "tools/app/feeds/run_source.h"

namespace millrace::app {
namespace {

std::unique_ptr<io::Source> told_source(const Config& config) {
  const TaskType& task = task_type(config.task.kind);
  if (task.gives != stages::Gives::picture && task.target != TargetFrom::label)
    throw config.error("task.kind", task.name + ": give (frame, target) pairs");
  std::optional<io::Labels> labels = configured_labels(config);
  std::unique_ptr<io::Source> source = open_source(config, {});
  return labels ? io::with_teller(std::move(source), io::teller_of(*std::move(labels)))
                : std::move(source);
}

bool is_live(const Config& config, const io::SourceInfo& info) {
  return paced_live(config, info) || info.live;
}

io::Drop policy(const Config& config, const io::SourceInfo& info) {
  return drop_policy(config, is_live(config, info));
}

}  // namespace

GivenFrames::GivenFrames(const Config& config) : GivenFrames(config, told_source(config)) {}

GivenFrames::GivenFrames(const Config& config, std::unique_ptr<io::Source> source)
    : resizer_(resizer_options(config, source->info())),
      queue_(queue_capacity(config, policy(config, source->info())),
             policy(config, source->info())),
      reader_([&] {
        const io::SourceInfo info = source->info();
        return io::Reader(std::move(source), queue_,
                          {.paced = paced_live(config, info) && !info.live,
                           .loop = config.source.loop,
                           .fps = info.fps});
      }()) {}

std::optional<GivenFrame> GivenFrames::next(std::chrono::milliseconds patience) {
  const bool drained = queue_.drained();  // asked first: a frame may come between
  io::Frame* const frame = queue_.pop(drained ? std::chrono::milliseconds(0) : patience);
  if (!frame) {
    if (drained) {
      over_ = true;
      reader_.join();
      if (!reader_.error().empty()) throw io::SourceError(reader_.error());
    }
    return std::nullopt;
  }
  const io::Frame& fit = resizer_.fit(*frame);
  GivenFrame given{
      {fit.channels, fit.height, fit.width}, std::vector<float>(fit.bytes()), frame->label};
  io::to_planar(fit, given.input.data());
  queue_.release(frame);
  return given;
}

}  // namespace millrace::app
