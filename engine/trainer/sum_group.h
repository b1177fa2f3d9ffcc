// Ranks that add up what each has computed: of modules that they share, or gradients of copies.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "engine/monitor/clock.h"
#include "engine/pipeline/exchange.h"
#include "stages/tensor_split.h"

namespace millrace::engine {

/// Each sends its part to all others and adds up all parts in the order of ranks, so that all get
/// the same bits: for two ranks as much as a ring sends, in one trip instead of two. Thread-safe,
/// but for one thread a place.
class SumGroup final : public stages::Reducer {
 public:
  /// `exchange`: of these ranks alone; outlives it.
  explicit SumGroup(Exchange& exchange);
  ~SumGroup() override;

  /// Throws RankLost if nothing was heard for 6 s of a rank whose part is waited for,
  /// std::runtime_error if that has failed. Where it has ended, since the sample is one that nobody
  /// learns from, there is no sum.
  void add_up(std::span<float> numbers, int place) override;
  /// Lets the others hear that this rank is alive. Some 20 times a second from the first sum on;
  /// a letter goes twice a second.
  void beat();
  /// Throws RankLost as above, of any that has not left. Under the exchange's mutex.
  void require_alive();
  /// The workers here have ended, which those of the others may not know.
  void leave(bool failed);

  Exchange& exchange() { return exchange_; }

 private:
  struct Sum {
    std::vector<float> mine;
    std::vector<std::vector<float>> theirs;  ///< by rank; its own is empty
    std::vector<int> to, from;               ///< ports, by rank
  };
  struct Peer {
    Clock::time_point heard;  ///< never: it may not have begun
    bool left = false, failed = false;
  };
  Sum& open(int place, std::size_t numbers);
  bool all_over(const Sum& sum);
  void read_letters();
  void post_to_all(const std::string& letter);

  Exchange& exchange_;
  // Under the exchange's mutex.
  std::map<int, std::unique_ptr<Sum>> sums_;  ///< by place
  std::vector<Peer> peers_;                   ///< by rank
  Clock::time_point beaten_;
};

}  // namespace millrace::engine
