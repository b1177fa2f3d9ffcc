#include "engine/pipeline/edge.h"

namespace millrace::engine {

Feed::Status Edge::poll(std::int64_t sample, std::chrono::microseconds patience) {
  bool ends = options_.drain && sample % shared_.choice == 0 &&
              options_.drain->load(std::memory_order_relaxed);
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

void Edge::take(std::int64_t sample, Clock::time_point asked) {
  shared_.monitor.admitted(asked, Clock::now());
  Sample& taken = shared_.in_flight(sample);
  SampleInfo& info = taken.info = {};
  shared_.feed.take(taken);
  info.sample = options_.before + sample;
  if (info.index < 0) info.index = info.sample;
  info.learns = choose(sample) && info.has_target;
  if (options_.guard) options_.guard->scene.see(taken, info.has_target && !options_.late_targets);
  shared_.again[std::size_t(sample) % shared_.again.size()] = info.replayed;
  shared_.admitted = sample + 1;
  if (info.replayed) {
    ++shared_.replays;
  } else if (!info.learns) {
    ++shared_.left_out;
  }
}

void Edge::shown(std::int64_t sample) {
  Sample& made = shared_.in_flight(sample);
  if (!made.info.replayed) shared_.monitor.predicted(made.info.captured, made.info.predicted);
  if (shared_.observer) shared_.observer->shown(made);
}

void Edge::predicted(std::int64_t sample, float loss) {
  if (shared_.observer) shared_.observer->predicted(shared_.in_flight(sample), loss);
}

bool Edge::full() const {
  return options_.limit > 0 &&
         shared_.admitted - shared_.replays - shared_.left_out - shared_.feed.missed() >=
             options_.limit;
}

bool Edge::choose(std::int64_t sample) {
  if (sample % shared_.choice == 0) {
    const std::int64_t every =
        options_.train_every ? options_.train_every->load(std::memory_order_relaxed) : 1;
    shared_.learns = sample == 0 || shared_.left_out_groups + 1 >= every;
    shared_.left_out_groups = shared_.learns ? 0 : shared_.left_out_groups + 1;
  }
  return shared_.learns;
}

void Edge::end_of_stream(std::int64_t samples) {
  shared_.end.store(samples, std::memory_order_relaxed);
}

}  // namespace millrace::engine
