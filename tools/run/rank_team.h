// The other ranks of a run, as rank 0 sees them.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "tools/run/rank_letters.h"

namespace millrace::tools {

/// Throws ConfigError, about pipeline.ranks, for workers that can't be dealt to `ranks` ranks.
void require_ranks(const Config& config, const engine::TrainerOptions& options, int ranks);

/// Thread-bound; trainer and exchange outlive it.
class RankTeam {
 public:
  /// Waits until every other rank has said that it has the same build and config. Throws
  /// ConfigError "rank N ...".
  RankTeam(engine::Exchange& exchange, const Config& config);

  /// Has them build what `trainer` is, and waits until they have. Throws ConfigError as above.
  void prepare(const engine::Trainer& trainer, double fps);
  /// Has them run.
  void go();
  /// Takes what they say and tells them what has changed. Returns a line on what happened, or "".
  std::string look(double rate, engine::Checkpointer* checkpointer);
  bool asked_to_stop() const { return asked_to_stop_; }

  /// "ranks" of the report: one object a rank.
  nlohmann::ordered_json report(const engine::Trainer& trainer, const engine::Reading& r) const;

 private:
  /// The next letter of each other rank. Throws for a failure among them.
  template <class Read>
  void each(Word expected, const Read& read);
  void tell_all(const LetterWriter& letter);

  struct Member {
    std::string host;
    std::int64_t process = 0;
  };

  engine::Exchange& exchange_;
  std::vector<Member> members_;  ///< by rank
  RankSettings settings_;
  bool asked_to_stop_ = false;
};

}  // namespace millrace::tools
