#include "engine/pipeline/admission.h"

#include "engine/pipeline/rank_links.h"

namespace millrace::engine {

void Admission::take(std::int64_t sample, Clock::time_point asked) {
  shared_.monitor.admitted(asked, Clock::now());
  Sample& taken = shared_.in_flight(sample);
  SampleInfo& info = taken.info = {};
  shared_.feed.take(taken);
  info.sample = options_.before + sample;
  if (info.index < 0) info.index = info.sample;
  info.learns = choose(sample) && info.has_target;
  shared_.again[std::size_t(sample) % shared_.again.size()] = info.replayed;
  shared_.admitted = sample + 1;
  if (info.replayed) {
    ++shared_.replays;
  } else if (!info.learns) {
    ++shared_.left_out;
  }
  if (shared_.ranks) shared_.ranks->send_target(sample);
}

bool Admission::full() const {
  return options_.limit > 0 &&
         shared_.admitted - shared_.replays - shared_.left_out - shared_.feed.missed() >=
             options_.limit;
}

bool Admission::drained(std::int64_t sample) const {
  return options_.drain && sample % shared_.choice == 0 &&
         options_.drain->load(std::memory_order_relaxed);
}

bool Admission::choose(std::int64_t sample) {
  if (sample % shared_.choice == 0) {
    const std::int64_t every =
        options_.train_every ? options_.train_every->load(std::memory_order_relaxed) : 1;
    shared_.learns = sample == 0 || shared_.left_out_groups + 1 >= every;
    shared_.left_out_groups = shared_.learns ? 0 : shared_.left_out_groups + 1;
  }
  return shared_.learns;
}

bool Admission::end_of_stream(std::int64_t samples) {
  shared_.applied.store(shared_.schedule.applied(samples), std::memory_order_relaxed);
  if (shared_.ranks) shared_.ranks->end_of_stream(samples);
  return false;
}

void deal_samples(Shared& shared, const PipelineOptions& options, int replica_id) {
  using Kind = Signal::Kind;
  Admission admission(shared, options);
  const Lowering& lowering = shared.lowering;
  const auto patience = [] { return kPatience; };
  for (std::int64_t sample = replica_id;; sample += lowering.replicas(0)) {
    const auto over = [&] { return shared.over(sample); };
    Token token;
    TokenQueue& turn = shared.channels.queue(
        {Kind::admission, 0, sample - 1, lowering.replica_with(0, sample - 1), replica_id});
    while (!turn.receive(token, kPatience)) {
      if (over()) return;
    }
    while (!shared.pool.acquire(sample, kPatience)) {
      if (over()) return;
    }
    const Clock::time_point asked = Clock::now();
    if (!admission.await(sample, patience, [] {})) return;
    admission.take(sample, asked);
    shared.ranks->send_sample(sample);
    shared.channels
        .link({Kind::admission, 0, sample, replica_id, lowering.replica_with(0, sample + 1)})
        .send({.sample = sample}, over);
  }
}

}  // namespace millrace::engine
