#include "engine/pipeline/gateway.h"

namespace millrace::engine {

Feed::Status Gateway::poll(std::int64_t sample, std::chrono::microseconds patience) {
  bool ends = shared_.options.drain && sample % shared_.choice == 0 &&
              shared_.options.drain->load(std::memory_order_relaxed);
  Feed::Status status = Feed::Status::wait;
  if (!ends && full()) {
    // A sample whose target never comes makes room for another one.
    ends = shared_.feed.targets_known(patience) == Feed::Status::ready && full();
  } else if (!ends) {
    status = shared_.feed.poll(patience);
    ends = status == Feed::Status::end;
  }
  if (!ends) return status;
  end_of_stream(sample);
  return Feed::Status::end;
}

void Gateway::take(std::int64_t sample, Clock::time_point asked) {
  shared_.pipeline.monitor.admitted(asked, Clock::now());
  Sample& taken = shared_.in_flight(sample);
  SampleInfo& info = taken.info = {};
  shared_.feed.take(taken);
  const Pipeline& pipeline = shared_.pipeline;
  info.sample = pipeline.before + sample;
  if (info.index < 0) info.index = info.sample;
  info.fate = choose(sample) ? Fate::trained : Fate::predicted_only;
  if (!info.has_target) info.fate = Fate::without_target;
  if (pipeline.guard) pipeline.guard->scene.see(taken, info.has_target && !pipeline.late_targets);
  shared_.set_replayed(sample, info.replayed);
  Admission& admission = shared_.admission;
  admission.admitted = sample + 1;
  if (info.replayed) {
    ++admission.replays;
  } else if (info.fate != Fate::trained) {
    ++admission.left_out;
  }
}

void Gateway::shown(std::int64_t sample) {
  Sample& ready = shared_.in_flight(sample);
  if (!ready.info.replayed)
    shared_.pipeline.monitor.predicted(ready.info.captured, ready.info.predicted);
  if (shared_.observer) shared_.observer->shown(ready);
}

void Gateway::predicted(std::int64_t sample, float loss) {
  if (shared_.observer) shared_.observer->predicted(shared_.in_flight(sample), loss);
}

bool Gateway::full() const {
  const Admission& now = shared_.admission;
  const std::int64_t limit = shared_.options.limit;
  return limit > 0 && now.admitted - now.replays - now.left_out - shared_.feed.missed() >= limit;
}

bool Gateway::choose(std::int64_t sample) {
  Admission& now = shared_.admission;
  if (sample % shared_.choice == 0) {
    const auto* const train_every = shared_.options.train_every;
    const std::int64_t every = train_every ? train_every->load(std::memory_order_relaxed) : 1;
    now.learns = sample == 0 || now.left_out_groups + 1 >= every;
    now.left_out_groups = now.learns ? 0 : now.left_out_groups + 1;
  }
  return now.learns;
}

void Gateway::end_of_stream(std::int64_t samples) {
  shared_.end.store(samples, std::memory_order_relaxed);
}

}  // namespace millrace::engine
