#include "engine/pipeline/pipeline.h"

#include <sys/prctl.h>

#include <algorithm>
#include <exception>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "engine/pipeline/gateway.h"
#include "engine/pipeline/perform.h"
#include "engine/pipeline/pinning.h"
#include "engine/pipeline/rank_options.h"
#include "engine/schedule/verifier.h"

namespace millrace::engine {
namespace {

/// Further holders of a sample beside the stages: rank 0's observer, if other ranks predict.
int viewers(const Schedule& schedule, const RankOptions* ranks) {
  if (!ranks || ranks->exchange->rank() != 0) return 0;
  const std::vector<int> worker_of = workers_of_replicas(schedule);
  const int first = schedule.replica_id(schedule.stages - 1, 0);
  return std::any_of(worker_of.begin() + first, worker_of.end(),
                     [&](int worker) { return ranks->rank_of_worker[std::size_t(worker)] != 0; });
}

/// Runs on the worker's thread.
void prepare(const Pipeline& pipeline, int worker) {
  if (pipeline.ranks) prctl(PR_SET_TIMERSLACK, 1);  // short sleeps must not oversleep
  if (worker < int(pipeline.cores.size()) && pipeline.cores[worker] >= 0)
    pin_this_thread(pipeline.cores[worker]);
  const Program& program = pipeline.schedule.workers[worker];
  for (const int stage : stages_of(program))
    pipeline.steps[pipeline.schedule.replica_id(stage, program.replica)]->prepare();
}

/// Rethrows this process's failure once all processes know.
[[noreturn]] void give_up(Gateway& gateway, const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    gateway.fail(error);
  }
  try {
    gateway.finish();
  } catch (const std::exception&) {
    // the failure here takes precedence
  }
  std::rethrow_exception(failure);
}

}  // namespace

Outcome run_pipeline(const Pipeline& pipeline, Feed& feed, Observer* observer,
                     const PipelineOptions& options) {
  const Schedule& schedule = pipeline.schedule;
  const int slots = schedule.slots();
  const std::int64_t choice = schedule.samples_a_choice();
  std::vector<std::unique_ptr<Sample>> empty;
  std::vector<Sample*> samples = pipeline.samples;
  while (int(samples.size()) < slots)
    samples.push_back(empty.emplace_back(std::make_unique<Sample>(int(samples.size()))).get());
  Lowering lowering(schedule);
  Channels channels(lowering, pipeline.link_capacity ? pipeline.link_capacity : unbounded(schedule),
                    unbounded(schedule));
  Shared shared{.pipeline = pipeline,
                .options = options,
                .feed = feed,
                .observer = observer,
                .samples = std::move(samples),
                .groups = groups_for(schedule, pipeline.steps),
                .pool = SlotPool(slots, schedule.stages + viewers(schedule, pipeline.ranks)),
                .choice = choice,
                .lowering = std::move(lowering),
                .channels = std::move(channels),
                .fates = Fates(pipeline.monitor.tally(), 2 * slots + choice)};
  const std::unique_ptr<Gateway> gateway =
      pipeline.ranks ? make_rank_gateway(shared) : std::make_unique<Gateway>(shared);
  shared.gateway = gateway.get();

  std::exception_ptr failure;  // the first failure, which stops all
  const auto noting_failure = [&](const auto& work) {
    try {
      work();
    } catch (...) {
      if (!shared.stop.exchange(true)) failure = std::current_exception();
    }
  };
  std::vector<int> workers;
  for (int worker = 0; worker < int(schedule.workers.size()); ++worker) {
    if (gateway->runs(worker)) workers.push_back(worker);
  }
  std::latch prepared(std::ptrdiff_t(workers.size()));
  auto works = gateway->threads();
  for (const int worker : workers) {
    works.emplace_back("worker " + std::to_string(worker), [&, worker] {
      noting_failure([&] { prepare(pipeline, worker); });
      prepared.arrive_and_wait();
      if (!shared.stop) run_worker(shared, worker);
    });
  }
  std::vector<std::thread> threads;
  for (const auto& [name, work] : works) {
    threads.emplace_back([&, &name = name, &work = work] {
      name_this_thread(name);
      noting_failure(work);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) give_up(*gateway, failure);
  const std::int64_t admitted = shared.admission.admitted, replays = shared.admission.replays;
  const std::int64_t used = schedule.trained(admitted);
  for (std::int64_t sample = std::max(used, admitted - slots); sample < admitted; ++sample) {
    Sample& last = shared.in_flight(sample);
    if (shared.never_comes(last))
      shared.fates.predicted(sample, Fate::without_target, last.info.replayed);
  }
  shared.fates.end_at(used);
  const FateCounts fates = gateway->finish();
  return {fates, admitted, admitted - replays - fates.fresh()};
}

}  // namespace millrace::engine
