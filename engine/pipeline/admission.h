// How samples are taken from the feed, one by one in their order.
#pragma once

#include "engine/pipeline/pipeline.h"

namespace millrace::engine {

/// By whoever has the next sample's turn: a worker of stage 0, or deal_samples().
class Admission {
 public:
  Admission(Shared& shared, const PipelineOptions& options) : shared_(shared), options_(options) {}

  /// Waits for the feed to have `sample`, whose slot is free. False: the stream ends before it, or
  /// nobody waits any longer. Calls `patience` for how long each look may last, `idle` where there
  /// was nothing.
  template <class Patience, class Idle>
  bool await(std::int64_t sample, const Patience& patience, const Idle& idle) {
    for (bool ready = false; !ready;) {
      if (drained(sample)) return end_of_stream(sample);
      bool waits = false;
      if (full()) {
        // Once more, when it is known of every sample whether it is learned from.
        waits = shared_.feed.settle(patience()) != Feed::Status::ready;
        if (!waits && full()) return end_of_stream(sample);
      } else {
        const Feed::Status status = shared_.feed.poll(patience());
        if (status == Feed::Status::end) return end_of_stream(sample);
        ready = status == Feed::Status::ready;
        waits = !ready;
      }
      // Who waits for the stream has its samples looked at meanwhile.
      if (waits) idle();
      if (shared_.over(sample)) return false;
    }
    return true;
  }
  /// Writes it into its slot, and tells other ranks of its target. `asked`: since when it was
  /// waited for.
  void take(std::int64_t sample, Clock::time_point asked);

 private:
  bool full() const;                        ///< whether as many are learned from as were asked for
  bool drained(std::int64_t sample) const;  ///< whether it was asked to admit no more
  bool choose(std::int64_t sample);         ///< whether a new sample is learned from
  bool end_of_stream(std::int64_t samples);

  Shared& shared_;
  const PipelineOptions& options_;
};

/// On rank 0: takes from the feed what a replica of stage 0 on another rank works on, and sends it
/// there. Returns at the end of the stream, or when nobody waits any longer.
void deal_samples(Shared& shared, const PipelineOptions& options, int replica_id);

}  // namespace millrace::engine
