// The ranks that share modules, as they add up what each has computed.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "engine/pipeline/exchange.h"
#include "stages/tensor_split.h"

namespace millrace::engine {

/// Each sends its part to all others and adds up all parts in the order of ranks, so that all get
/// the same bits: for two ranks as much as a ring sends, in one trip instead of two. Thread-safe,
/// but for one thread a place.
class TensorGroup final : public stages::Reducer {
 public:
  /// `exchange`: of these ranks alone; outlives it.
  explicit TensorGroup(Exchange& exchange) : exchange_(exchange) {}
  ~TensorGroup() override;

  /// Throws RankLost if a part does not come for 6 s, std::runtime_error if its rank has failed.
  /// Where its rank has ended, since the sample is one that nobody learns from, there is no sum.
  void add_up(std::span<float> numbers, int place) override;
  /// The workers here have ended, which those of the others may not know.
  void leave(bool failed);

 private:
  struct Sum {
    std::vector<float> mine;
    std::vector<std::vector<float>> theirs;  ///< by rank; its own is empty
    std::vector<int> to, from;               ///< ports, by rank
  };
  Sum& open(int place, std::size_t numbers);
  bool all_over(const Sum& sum);
  void look_for_leavers();

  Exchange& exchange_;
  std::map<int, std::unique_ptr<Sum>>
      sums_;  ///< by place; under the exchange's mutex, as all below
  int left_ = 0;
  int failed_ = -1;  ///< rank
};

}  // namespace millrace::engine
