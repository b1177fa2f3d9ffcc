// Ranks that add up what each has computed: of modules that they share, or gradients of copies.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/monitor/clock.h"
#include "engine/pipeline/exchange.h"
#include "engine/pipeline/rank_pulse.h"
#include "stages/tensor_split.h"

namespace millrace::engine {

/// Each sends its part to all others and adds up all parts in the order of ranks, so that all get
/// the same bits: two ranks send as much as in a ring, in one trip instead of two. Thread-safe,
/// with one thread for each place.
class SumGroup final : public stages::Reducer {
 public:
  /// `exchange`: of these ranks alone; outlives it.
  explicit SumGroup(Exchange& exchange);
  ~SumGroup() override;

  /// Throws RankLost if a rank was silent for 6 s, std::runtime_error if one has failed. If one has
  /// ended, the sample is one that nobody learns from, and there is no sum.
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
  Sum& open(int place, std::size_t numbers);
  bool all_over(const Sum& sum);
  void post(const std::string& letter) {
    exchange_.post_to_others(Exchange::About::pipeline, letter);
  }
  void read_letters();

  Exchange& exchange_;
  // Under the exchange's mutex.
  std::map<int, std::unique_ptr<Sum>> sums_;  ///< by place
  RankPulse pulse_{exchange_, std::chrono::seconds(6)};
  bool any_left_ = false;
  std::string failure_;  ///< of another rank; "": none
  Clock::time_point beaten_;
};

}  // namespace millrace::engine
