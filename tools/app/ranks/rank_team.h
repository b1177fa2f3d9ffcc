#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/app/ranks/rank_grid.h"
#include "tools/app/ranks/rank_letters.h"
#include "tools/app/run.h"

namespace millrace::app {

/// Throws ConfigError if the workers can't be distributed over `ranks` ranks.
void require_ranks(const Config& config, const engine::TrainerOptions& options, int ranks);

/// Rank 0's view of the other ranks. Thread-bound; trainer and exchange outlive it.
class RankTeam {
 public:
  /// Waits until all other ranks have reported the same build and config; see RunOptions::waits.
  /// Throws ConfigError and Stopped, as does prepare().
  RankTeam(engine::Exchange& exchange, const Config& config, Waits waits);

  RankGrid& grid() { return *grid_; }
  /// Makes the others build their share of `trainer` and waits for it.
  void prepare(const engine::Trainer& trainer, double fps);
  void go();
  /// Handles the ranks' letters and sends changed settings. Returns a line of news, or "".
  std::string look(double rate, engine::Checkpointer* checkpointer);
  /// `mine`, this trainer's state, with the other ranks' parts of shared modules. Waits for them.
  stages::StateDict whole(stages::StateDict mine);
  /// Waits for the other pipelines' reports on their sources. Returns why one broke off, or "".
  std::string await_sources();
  bool asked_to_stop() const { return asked_to_stop_; }

  /// The report's "ranks": one object per rank.
  nlohmann::ordered_json report(const engine::Trainer& trainer, const engine::Reading& r) const;
  /// The slowest link, as in a rank's "links"; null: none was timed.
  nlohmann::ordered_json bottleneck_link() const;

 private:
  /// Reads the next letter of each other rank. Throws if one reports a failure.
  template <class Read>
  void each(Word expected, const Read& read);
  void tell_all(const engine::ByteWriter& letter);
  /// For this rank's pipeline, by rank number in the whole run.
  std::vector<engine::LinkTime> link_times() const;

  struct Member {
    std::string host;
    std::int64_t process = 0;
  };

  /// Stores a letter's content and returns its word.
  Word take(const engine::Exchange::Letter& letter, engine::Checkpointer* checkpointer = nullptr);
  int ranks_a_copy() const { return exchange_.ranks() / grid_->copies(); }

  engine::Exchange& exchange_;
  const Waits waits_;
  std::unique_ptr<RankGrid> grid_;
  std::map<int, stages::StateDict> shares_;
  std::map<int, SourceReport> sources_;  ///< [copy of the pipeline], except the first
  std::vector<Member> members_;
  RankSettings settings_;
  bool asked_to_stop_ = false;
};

}  // namespace millrace::app
