// Keeps copies of a pipeline, which learn one network from a source each, in step.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/pipeline/feed.h"
#include "engine/trainer/sum_group.h"

namespace millrace::app {

/// A copy's feed. Each copy takes its n-th sample when all have one, so that their n-th updates can
/// be summed. The other copies report that they are ready or at their end; the first one answers go
/// or end. Frames stay on their rank. Threads as engine::Feed; poll() throws RankLost.
class LockstepFeed final : public engine::Feed {
 public:
  /// `own`: this copy's source. `copies`: the first ranks of all copies. Both outlive it.
  LockstepFeed(engine::Feed& own, engine::SumGroup& copies);
  /// Closes the exchange's ports, also those of the sums.
  ~LockstepFeed() override;
  Status poll(std::chrono::microseconds patience) override;
  void take(engine::Sample& sample) override;
  /// Ends all copies. On the first one, by the worker that takes samples.
  void end();

 private:
  /// What a copy reports of its next sample, and the first copy's answer.
  enum class Word : std::int64_t { end, ready };
  struct Peer {
    Word said = Word::end;
    int in = -1, out = -1;  ///< ports
    Word says = Word::end;
    bool heard = false;  ///< an answer to the last listen()
  };
  bool leads() const { return exchange_.rank() == 0; }
  void listen(Peer& peer);
  bool hears(Peer& peer);  ///< under the mutex
  void say(Peer& peer, Word word);
  Status all_ready();

  engine::Feed& own_;
  engine::SumGroup& copies_;
  engine::Exchange& exchange_;
  std::vector<Peer> peers_;  ///< the first copy's: all others; another's: the first
  bool said_ = false;        ///< on the other copies: of the next sample
  bool over_ = false;
};

}  // namespace millrace::app
