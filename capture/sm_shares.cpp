#include "capture/sm_shares.h"

#include <stdexcept>  // std::invalid_argument
#include <string>     // message

namespace millrace::capture {

std::vector<int> sm_shares(int groups, const std::vector<double>& work) {
  const int stages = int(work.size());
  if (stages == 0 || groups < stages) {
    throw std::invalid_argument(std::to_string(stages) + " stages can't have SMs of their own in " +
                                std::to_string(groups) + " groups");
  }
  // Each further group goes to the slowest. That is exact: if stage s ended slower than the best
  // choice's slowest, it would have fewer groups than there, and some stage t more. When t got its
  // last one it had at least what the best choice gives it, and so was no slower than that choice's
  // slowest, while s was: t was not the slowest.
  std::vector<int> shares(work.size(), 1);
  const auto slower = [&](int a, int b) {
    const double mine = work[a] / shares[a], other = work[b] / shares[b];
    return mine != other ? mine > other : shares[a] < shares[b];  // without work: evenly
  };
  for (int given = stages; given < groups; ++given) {
    int slowest = 0;
    for (int stage = 1; stage < stages; ++stage) {
      if (slower(stage, slowest)) slowest = stage;
    }
    ++shares[slowest];
  }
  return shares;
}

}  // namespace millrace::capture
