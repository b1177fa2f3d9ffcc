#include "engine/pipeline/pipeline.h"

#include <pthread.h>

#include <algorithm>
#include <latch>
#include <string>
#include <thread>

#include "engine/pipeline/pinning.h"
#include "engine/pipeline/worker.h"

namespace millrace::engine {
namespace {

bool any_defers(const std::vector<capture::Step*>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const auto* step) { return step->defers(); });
}

}  // namespace

Pipeline::Pipeline(const Schedule& schedule, std::vector<capture::Step*> steps, Feed& feed,
                   Observer* observer, Monitor& monitor, PipelineOptions options)
    : schedule_(schedule),
      options_(std::move(options)),
      shared_{
          schedule_, std::move(steps),
          any_defers(shared_.steps) ? longest_launch_groups(schedule_) : LaunchGroups(schedule_),
          feed, observer, monitor, SlotPool(schedule.slots(), schedule.stages),
          schedule.samples_a_choice(), std::vector<SampleInfo>(schedule.slots()),
          Lowering(schedule_),
          // Gradients may stay unread for the whole age of the pipeline; tokens are small, so
          // room for twice the samples in flight costs nothing and no send ever waits.
          Channels(shared_.lowering, 2 * std::size_t(schedule.slots()) + 2),
          Fates(2 * schedule.slots() + shared_.choice),
          std::vector<char>(std::size_t(2 * schedule.slots() + shared_.choice))} {}

Outcome Pipeline::run() {
  const int count = int(schedule_.workers.size());
  Tally& tally = shared_.monitor.tally();
  const std::int64_t trained_before = tally.trained.load();
  const std::int64_t replayed_before = tally.replayed.load();
  const std::int64_t left_out_before = tally.predicted_only.load();
  const std::int64_t untold_before = tally.untold.load();
  std::vector<std::thread> threads;
  std::latch prepared(count);
  for (int worker = 0; worker < count; ++worker) {
    threads.emplace_back([&, worker] {
      bool arrived = false;
      try {
        pthread_setname_np(pthread_self(), ("worker " + std::to_string(worker)).c_str());
        if (worker < int(options_.cores.size()) && options_.cores[worker] >= 0)
          pin_this_thread(options_.cores[worker]);
        const Program& program = schedule_.workers[worker];
        for (const int stage : stages_of(program))
          shared_.steps[schedule_.unit(stage, program.replica)]->prepare();
        arrived = true;
        prepared.arrive_and_wait();
        Worker(shared_, worker, options_).run();
      } catch (...) {
        if (!shared_.stop.exchange(true)) {
          const std::lock_guard lock(failure_mutex_);
          failure_ = std::current_exception();
        }
        if (!arrived) prepared.count_down();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure_) std::rethrow_exception(failure_);
  const Outcome outcome = this->outcome();
  // A replica may have counted what another could not.
  tally.trained.store(trained_before + outcome.trained);
  tally.replayed.store(replayed_before + outcome.replayed);
  tally.predicted_only.store(left_out_before + outcome.predicted_only);
  tally.untold.store(untold_before + outcome.untold);
  return outcome;
}

Outcome Pipeline::outcome() const {
  const std::int64_t admitted = shared_.admitted, used = schedule_.trained(admitted);
  const auto count = [&](Fate fate) { return shared_.fates.count(fate, used); };
  const std::int64_t left_out = count(Fate::predicted_only), untold = count(Fate::untold),
                     replayed = count(Fate::replayed),
                     replays = replayed + count(Fate::replayed_in_vain);
  return {.admitted = admitted,
          .replayed = replayed,
          .trained = used - left_out - untold - replays,
          .predicted_only = left_out,
          .untold = untold,
          .rejected = admitted - used - (shared_.replays - replays)};
}

Outcome& Outcome::operator+=(const Outcome& more) {
  admitted += more.admitted;
  replayed += more.replayed;
  trained += more.trained;
  predicted_only += more.predicted_only;
  untold += more.untold;
  rejected += more.rejected;
  return *this;
}

}  // namespace millrace::engine
