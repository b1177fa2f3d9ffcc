// What ranks that share a pipeline write to each other: that they live, what they have measured,
// how the run ends.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/pipeline/bytes.h"
#include "engine/pipeline/rank_clocks.h"
#include "engine/pipeline/rank_ports.h"
#include "engine/pipeline/rank_pulse.h"

namespace millrace::engine {

/// The letters of one run. Called under Exchange::mutex().
class RankLetters {
 public:
  /// What a rank reports when its workers have ended.
  struct Final {
    LossCounts counts;
    std::int64_t predictions = 0;  ///< that it sent to rank 0
  };

  /// All outlive this.
  RankLetters(const RankOptions& options, Shared& shared, const RankPorts& ports);

  /// To each other rank: this one is alive, and what time it is here.
  void beat();
  /// To rank 0: what was measured here.
  void report();
  /// Reads what has come, up to a letter of a later run.
  void read();
  /// Stops the workers here if a rank is lost.
  void look_for_losses();

  /// To all: the stream held `samples`.
  void end_of_stream(std::int64_t samples);
  /// To all: a worker here has failed. `lost`: for lack of a rank.
  void fail(const std::string& what, bool lost);
  /// To all: the workers here have ended.
  void end(const Final& final);
  /// Nobody here waits any longer. `lost`: a rank is.
  void give_up(const std::string& why, bool lost);

  bool has_ended() const { return ended_; }  ///< this rank
  bool all_ended() const;                    ///< the others have, and know that this one has
  bool has_failed() const { return failed_ || lost_ || !failure_.empty(); }
  bool is_lost() const { return lost_; }
  /// What failed elsewhere; "": nothing.
  const std::string& failure() const { return failure_; }
  /// Null unless `rank` has a replica of the last stage and has ended.
  const Final* final(int rank) const { return finals_[std::size_t(rank)].get(); }
  /// When a message of `peer` was sent, by the clock here; nullopt: its clock is not known yet.
  std::optional<Clock::time_point> here(int peer, Clock::time_point by_its_clock) const;

 private:
  bool read(const Exchange::Letter& letter);  ///< false: it is of a later run
  ByteWriter letter(char kind) const;         ///< of this run
  void tell(int rank, const ByteWriter& letter);
  void tell_all(const ByteWriter& letter);
  void send_beat(int rank);
  void tell_times();
  std::string meters() const;
  void take_meters(ByteReader& bytes);
  void stop(bool lost);

  const RankOptions& options_;
  Exchange& exchange_;
  Shared& shared_;
  const RankPorts& ports_;
  RankPulse pulse_;
  RankClocks clocks_;
  int finished_ = 0;     ///< other ranks
  bool failed_ = false;  ///< a worker here
  bool lost_ = false, ended_ = false;
  std::string failure_;
  std::vector<std::unique_ptr<Final>> finals_;  ///< by rank, of those with the last stage
};

}  // namespace millrace::engine
