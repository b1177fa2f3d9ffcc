#include "engine/pipeline/pipeline.h"

#include <pthread.h>

#include <algorithm>
#include <latch>
#include <string>
#include <thread>

#include "engine/pipeline/pinning.h"
#include "engine/pipeline/rank_edge.h"
#include "engine/pipeline/worker.h"

namespace millrace::engine {
namespace {

bool any_defers(const std::vector<capture::Step*>& steps) {
  return std::any_of(steps.begin(), steps.end(),
                     [](const auto* step) { return step && step->defers(); });
}

void name_thread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.c_str());
}

/// Holders of a sample besides the stages: rank 0's observer, if other ranks predict.
int viewers(const Schedule& schedule, const RankOptions* ranks) {
  if (!ranks || ranks->exchange->rank() != 0) return 0;
  const std::vector<int> worker_of = workers_of_replicas(schedule);
  const int first = schedule.replica_id(schedule.stages - 1, 0);
  return std::any_of(worker_of.begin() + first, worker_of.end(),
                     [&](int worker) { return ranks->rank_of_worker[std::size_t(worker)] != 0; });
}

}  // namespace

std::vector<Sample*> Pipeline::samples() {
  if (!options_.samples.empty()) return options_.samples;
  std::vector<Sample*> all;
  for (int slot = 0; slot < schedule_.slots(); ++slot)
    all.push_back(empty_samples_.emplace_back(std::make_unique<Sample>(slot)).get());
  return all;
}

Pipeline::Pipeline(const Schedule& schedule, std::vector<capture::Step*> steps, Feed& feed,
                   Observer* observer, Monitor& monitor, PipelineOptions options)
    : schedule_(schedule),
      options_(std::move(options)),
      shared_{
          schedule_, std::move(steps),
          any_defers(shared_.steps) ? longest_launch_groups(schedule_) : LaunchGroups(schedule_),
          feed, observer, monitor,
          SlotPool(schedule.slots(), schedule.stages + viewers(schedule, options_.ranks)),
          schedule.samples_a_choice(), samples(), Lowering(schedule_),
          // Gradients may stay unread for the whole age of the pipeline. Tokens are small, so room
          // for twice the samples in flight costs little, and no send ever waits.
          Channels(shared_.lowering, 2 * std::size_t(schedule.slots()) + 2),
          Fates(monitor.tally(), 2 * schedule.slots() + shared_.choice),
          std::vector<char>(std::size_t(2 * schedule.slots() + shared_.choice))} {
  if (options_.ranks) {
    edge_ = std::make_unique<RankEdge>(*options_.ranks, shared_, options_);
  } else {
    edge_ = std::make_unique<Edge>(shared_, options_);
  }
  shared_.edge = edge_.get();
}

Pipeline::~Pipeline() = default;

Outcome Pipeline::run() {
  std::vector<int> workers;
  for (int worker = 0; worker < int(schedule_.workers.size()); ++worker) {
    if (edge_->runs(worker)) workers.push_back(worker);
  }
  std::vector<std::thread> threads;
  std::latch prepared(std::ptrdiff_t(workers.size()));
  for (const int worker : workers) {
    threads.emplace_back([&, worker] {
      bool arrived = false;
      noting_failure([&] {
        name_thread("worker " + std::to_string(worker));
        if (worker < int(options_.cores.size()) && options_.cores[worker] >= 0)
          pin_this_thread(options_.cores[worker]);
        const Program& program = schedule_.workers[worker];
        for (const int stage : stages_of(program))
          shared_.steps[schedule_.replica_id(stage, program.replica)]->prepare();
        arrived = true;
        prepared.arrive_and_wait();
        Worker(shared_, worker, options_).run();
      });
      if (!arrived) prepared.count_down();
    });
  }
  for (auto& [name, work] : edge_->threads()) {
    threads.emplace_back([this, name = std::move(name), work = std::move(work)] {
      noting_failure([&] {
        name_thread(name);
        work();
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure_) give_up();
  const std::int64_t admitted = shared_.admitted, used = schedule_.trained(admitted);
  shared_.fates.take_back(used);
  const FateCounts fates = edge_->finish();
  const std::int64_t replays = fates.replayed + fates.replayed_in_vain;
  return {fates, admitted, admitted - used - (shared_.replays - replays)};
}

template <class Work>
void Pipeline::noting_failure(const Work& work) {
  try {
    work();
  } catch (...) {
    if (shared_.stop.exchange(true)) return;
    const std::lock_guard lock(failure_mutex_);
    failure_ = std::current_exception();
  }
}

void Pipeline::give_up() {
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    edge_->fail(error);
  }
  try {
    edge_->finish();
  } catch (const std::exception&) {
    // The failure here takes precedence.
  }
  std::rethrow_exception(failure_);
}

}  // namespace millrace::engine
