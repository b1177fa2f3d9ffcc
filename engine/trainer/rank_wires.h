// Which stages hand over from GPU to GPU, though they are different ranks'.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "capture/buffers.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

/// Lays wires over the cuts between recorded steps on GPUs of two ranks. Thread-bound.
class RankWires {
 public:
  /// `options`, `schedule`: of the trainer, and outlive it. `devices`: of all ranks, by replica_id.
  RankWires(const TrainerOptions& options, const Schedule& schedule,
            const std::vector<Device>& devices);

  /// Whether the cut after `stage` has any, with one end here.
  bool over_cut(int stage) const;
  bool any() const;
  /// Tensors and wires of this rank's side; forget() takes back all, before boundaries go.
  void lay(int stage, capture::Boundary& boundary);
  void forget() { ways_.clear(); }

  // By all ranks at once.
  /// Unless it was done: waits for the other ends.
  void connect();
  /// What was sent last need not have been looked at by its taker: takes it, so that both ends have
  /// moved as often.
  void drain();

 private:
  struct Way {
    int number;  ///< the same at both ends
    int peer;
    bool sends;
    bool connected;
    capture::BoundaryBuffers* buffers;
  };
  int rank_of(int stage) const;
  const capture::GpuId* gpu_of(int stage) const;  ///< null: none that wires go to
  void lay(int stage, bool sends, int number, int peer, capture::BoundaryBuffers& way);
  void tell(const Way& way, const std::string& text);
  std::string told(const Way& way);

  const TrainerOptions& options_;
  const Schedule& schedule_;
  const std::vector<Device>& devices_;
  std::vector<Way> ways_;
  std::map<int, std::string> early_;  ///< what peers said of other ways
};

}  // namespace millrace::engine
