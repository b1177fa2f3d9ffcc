// One arm of the benchmark of learning: a stream learned by one rule, without threads or clocks.
#pragma once

#include <ATen/core/Tensor.h>  // frames

#include <cstdint>  // seeds
#include <string>   // names
#include <vector>   // losses

#include "engine/trainer/trainer.h"

namespace millrace::bench {

/// A stream in memory: frames to learn from and, from the same scenes, frames that are only looked
/// at.
struct LearningStream {
  std::string name;
  std::string uri;
  std::int64_t turn = 0;  ///< frames that a scene stays; 0: one scene
  int classes = 0;        ///< 0: frames are to be given back; else their class is to be told
  std::vector<at::Tensor> frames, held_out;
  std::vector<at::Tensor> targets, held_out_targets;  ///< the frames themselves, or [1,classes,1,1]
};

/// Reads `learn` frames of [3,height,width], and then every fifth of the 200 that follow.
/// `labels`: its frames' classes are the targets.
LearningStream read_stream(const std::string& name, const std::string& uri, std::int64_t turn,
                           std::int64_t learn, int width, int height, bool labels = false);

struct LearningArm {
  const LearningStream* stream = nullptr;
  std::string schedule;
  int stages = 1;
  stages::OptimizerSpec optimizer;
  std::string optimizer_name;  ///< "adam", "adam, beta1 0", ...
  std::string correction = "none";
  std::string norm = "none";  ///< of pictures' network, as model.norm
  double slope = 0;           ///< of its leaky ReLU, as model.slope; 0: ReLU
  int every = 1;  ///< learns from every so many-th frame: as many as it takes, of a live stream
  std::string name() const;
};

/// "none", "instance", "instance, leaky ReLU 0.3".
std::string network_text(const std::string& norm, double slope);

/// "all", "every 2nd", "every 4th".
std::string frames_text(int every);

/// Scenes that streams of scenes take turns with.
constexpr int kLearningScenes = 3;

/// What a run of an arm leaves. Losses are of predictions made before learning from the frame; one
/// that is no number counts as 1, the most that a prediction and a target between 0 and 1 can have.
struct LearningScore {
  double mean = 0;           ///< over the run
  double last = 0;           ///< over its last 100
  double held_out = 0;       ///< of the final weights, on frames not learned from
  double held_out_hits = 0;  ///< labels: share of those frames whose class it tells
  /// Streams of scenes: the first scene's loss on its first 20 frames after it came back, over that
  /// on its 20 last before; 1: nothing forgotten. 0: no scene came back.
  double forgetting = 0;
  std::int64_t roll_backs = 0;  ///< that the loss guard ordered
  std::int64_t no_numbers = 0;  ///< losses that were none
  std::vector<float> losses;
};

/// Runs `arm` by the oracle, with the loss guard and weights from `seed`. Reentrant.
LearningScore run_arm(const LearningArm& arm, double lr, std::uint64_t seed);

}  // namespace millrace::bench
