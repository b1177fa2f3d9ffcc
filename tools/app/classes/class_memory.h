// Learns from labels in closed form, so that a class is not forgotten however long another is seen.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "io/source/split_mix.h"
#include "stages/stage.h"
#include "tools/app/classes/likeness.h"

namespace millrace::app {

class Ridge;

struct ClassMemoryOptions {
  int places = 256;  ///< frames remembered
  std::uint64_t seed = 0;
  /// Labels come from people who click late: of the frames before a label changes, those of so many
  /// seconds are forgotten, but at most half of the old label's.
  double late_s = 0;
  /// Alternatively, single frames have a label: frames of so many seconds after one count as its
  /// class, up to the next label, unless the others contradict.
  double following_s = 0;
  bool scores = true;  ///< the loss takes class scores (logits); otherwise outputs are near 0 and 1
  /// Classes that `weights` know: the mean of its features stands for each until it is labelled
  /// again, or a tenth of the labelled frames would be taken for it.
  Likeness known;
};

/// Remembers labelled frames, equally many per class, and sets the last linear layer of a network
/// to the ridge regression of their classes on that layer's inputs (features). All other weights
/// are fixed, so features need not be computed again, and no gradient is old.
///
/// A class with few labelled frames would be recognised by incidental objects in them, so the
/// frames that follow a labelled one help: five a second, until the picture jumps, and unless their
/// class seems to have changed: the regression without all of them scores them less for it than the
/// labelled frame.
///
/// While there is room, every labelled frame is remembered. Then a frame of a class with fewer
/// frames than another replaces one of the largest class; a wrongly answered frame replaces one of
/// its own class; other frames do so as in reservoir sampling, so that a class's frames are a
/// uniform choice of all that had its label.
///
/// see(), forget() and solve() belong to one thread at a time; told(): any thread.
class ClassMemory {
 public:
  /// `network` must end_in_linear(), with `weights`. Throws std::invalid_argument if it does not
  /// fit, std::bad_alloc.
  ClassMemory(std::shared_ptr<const stages::Network> network, const stages::StateDict& weights,
              const ClassMemoryOptions& options);

  /// Takes the stream's next frame: `input` [C,H,W]; `label`: its class, -1: none; `answer`: the
  /// predicted class; `seconds`: its time.
  void see(std::span<const float> input, int label, int answer, double seconds);
  /// Forgets at `seconds` all that `label` was taught, also in frames that are still under way.
  void forget(int label, double seconds);
  /// Solves for the layer's weights if due (or `now`) and needed. Returns whether they changed.
  bool solve(bool now = false);
  /// The layer's weights, named as in the network.
  const stages::StateDict& head() const { return head_; }
  const Likeness& likeness() const { return likeness_; }
  std::int64_t bytes() const { return std::int64_t(features_.nbytes()); }

  struct Told {
    std::vector<std::int64_t> counts;          ///< [class]: frames remembered
    std::int64_t solved = 0;                   ///< times
    std::shared_ptr<const Likeness> likeness;  ///< at the latest solution, for a weights file
  };
  Told told() const {
    const std::lock_guard lock(mutex_);
    return all_told_;
  }
  /// The remembered frames as a checkpoint's entries, and back. Entries that don't fit are ignored.
  stages::StateDict entries() const;
  void restore(const stages::StateDict& state);

  static constexpr std::int64_t kJudged =
      10;  ///< frames of a returning class to answer before learning from them

 private:
  struct Kept {
    int label = -1;
    double seconds = 0;
    std::int64_t group = 0;  ///< shared by a labelled frame and those that follow it
    bool follows = false;
  };
  std::int64_t count() const { return std::int64_t(kept_.size()); }
  int place_for(int label, bool wrong, bool follows);
  int any_of(int label);
  at::Tensor thumbnail_of(std::span<const float> input) const;
  at::Tensor features_of(std::span<const float> input) const;
  void put(int place, const Kept& kept, std::span<const float> input);
  void remove(int place);
  void forget_late(double seconds);
  /// Forgets frames of `label` that came after `seconds`.
  void forget_after(int label, double seconds);
  /// Indices of labelled frames, and of following frames that agree with `ridge`.
  std::vector<std::int64_t> believed(const Ridge& ridge) const;
  bool stands_in(std::size_t label) const {
    return counts_[label] == 0 && known_features_[label].defined();
  }
  /// [m, features]: what features change by when the light does, in each class's mean picture.
  at::Tensor light_changes() const;
  /// The regression of frames `rows` and of what stands in; in any light, unless that costs
  /// much of the scores.
  Ridge solved(const std::vector<std::int64_t>& rows) const;
  /// Forgets classes of the weights file that labelled frames contradict. Returns whether any.
  bool contradicted(const Ridge& ridge);
  void fit();
  void know(const std::vector<std::int64_t>& rows);

  const ClassMemoryOptions options_;
  const std::shared_ptr<const stages::Network> network_;
  const std::unique_ptr<stages::Stage> body_;  ///< null: the linear layer is the whole network
  std::vector<stages::ParameterSpec> layer_;   ///< its parameters: weight, maybe bias
  stages::ImageShape frame_;
  at::Tensor features_;                     ///< [places, features]
  at::Tensor thumbnails_;                   ///< [places, values]
  at::Tensor pictures_;                     ///< [classes,C,H,W]: the mean of a class's frames
  std::vector<at::Tensor> known_features_;  ///< [class]: [1, features], or undefined
  std::vector<Kept> kept_;
  std::vector<std::int64_t> counts_, seen_;  ///< [class]: remembered, labelled
  io::Random random_;
  int label_ = -1;     ///< of the latest frame
  int labelled_ = -1;  ///< of the latest labelled frame
  double began_ = 0;   ///< when label_ began
  std::int64_t group_ = 0;
  at::Tensor group_picture_;  ///< thumbnail of its labelled frame
  /// Seconds of the group's labelled frame, and of its latest one.
  double group_began_ = -std::numeric_limits<double>::infinity(), latest_ = 0;
  std::vector<double> unlabelled_until_;  ///< [class]: seconds at which its labels count again
  std::int64_t judging_ = 0;  ///< frames until the first ones of a returning class are learned from
  std::int64_t changes_ = 0;
  bool told_ = true;  ///< the caller has been notified of head_
  stages::StateDict head_;
  Likeness likeness_;
  mutable std::mutex mutex_;
  Told all_told_;  ///< under the mutex
};

}  // namespace millrace::app
