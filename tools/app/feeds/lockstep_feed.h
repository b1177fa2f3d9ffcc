// Samples for copies of a pipeline that learn one network, each from a source of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/pipeline/feed.h"
#include "engine/trainer/sum_group.h"

namespace millrace::app {

/// A copy's feed: every copy takes its n-th sample when all have one, so that its n-th update can
/// be all copies' update. The others say that they are ready, or at their end; the first says go,
/// or that there is no more. Frames stay where they are. As engine::Feed; poll() throws RankLost.
class LockstepFeed final : public engine::Feed {
 public:
  /// `own`: of this copy's source. `copies`: the first ranks of all copies. Both outlive it.
  LockstepFeed(engine::Feed& own, engine::SumGroup& copies);
  /// There are no sums any more either.
  ~LockstepFeed() override;
  Status poll(std::chrono::microseconds patience) override;
  void take(engine::Sample& sample) override;
  /// On the first, by the worker that takes from it: no more is taken.
  void end();

 private:
  /// What a copy says of its next sample, and the first of everybody's.
  enum class Word : std::int64_t { end, ready };
  struct Peer {
    Word said = Word::end;
    int in = -1, out = -1;  ///< ports
    Word says = Word::end;
    bool heard = false;  ///< since it was last listened to
  };
  bool leads() const { return exchange_.rank() == 0; }
  void listen(Peer& peer);
  bool hears(Peer& peer);  ///< under the mutex
  void say(Peer& peer, Word word);
  Status all_ready();

  engine::Feed& own_;
  engine::SumGroup& copies_;
  engine::Exchange& exchange_;
  std::vector<Peer> peers_;  ///< of the first: all others; of another: the first
  bool said_ = false;        ///< by another than the first: of the next sample
  bool over_ = false;
};

}  // namespace millrace::app
