#include "tools/app/console.h"

#include "tools/app/correction_choice.h"

namespace millrace::app {
namespace {

std::unique_ptr<LiveView> make_page(const Request& request, Intake& intake, Learner& learner,
                                    Records& records) {
  if (!request.options.serve) return nullptr;
  const Config& config = request.config;
  return std::make_unique<LiveView>(
      config, intake.shape(), request.options.serve_at, request.options.token,
      LiveSubject{learner.trainer, intake.queue, records.log, learner.real_time, intake.health,
                  records.checkpointer.get(), records.writes, learner.rate,
                  describe_correction(config, learner.assembled), local_note(learner.assembled),
                  request.resumed.frames,
                  config.task.labels == "http" ? request.live_labels : nullptr});
}

}  // namespace

Console::Console(const Request& request, Intake& intake, Learner& learner, Records& records)
    : events(learner.trainer, *intake.health, records.log.novelty()),
      status(learner.trainer, intake.queue, records.log, learner.overload, learner.real_time,
             request.resumed.frames),
      page(make_page(request, intake, learner, records)),
      stdin_labels(request.config.task.labels == "-"),
      reload(request.config, request.options.read_again,
             {learner.rate, learner.trainer.monitor(), intake.info.fps,
              records.checkpointer.get()}) {
  if (page) records.observers.add(page.get());
}

}  // namespace millrace::app
