#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/monitor/clock.h"
#include "engine/monitor/tally.h"

namespace millrace::engine {

/// Mean squared errors of trivial predictors on a sample; see SceneWatch.
struct SceneErrors {
  float input = 0, target = 0;  ///< of the mean frame
  float change = 0;             ///< of the previous input on this one, the latest peak, decaying
};

struct SampleInfo {
  std::int64_t sample = -1;  ///< 0, 1, ... in order of admission
  std::int64_t index = -1;   ///< counts samples without replayed ones; may come from the feed
  std::int64_t frame = -1;   ///< the frame's number at its source
  Clock::time_point captured;
  Clock::duration pts{0};     ///< position in the stream, monotonic; 0 for replayed samples
  Fate fate = Fate::trained;  ///< as admitted; for a replayed sample, as if it were new
  bool has_target = true;     ///< false: the loss is meaningless
  SceneErrors scene;          ///< set if there is a guard
  /// Trained on before: counted separately; its times do not describe the stream.
  bool replayed = false;
  Clock::time_point predicted;  ///< when its prediction was ready
};

/// A sample and the slot that holds its tensors until every stage has released it. A feed fills it,
/// observers read it. The base class has no tensors.
class Sample {
 public:
  explicit Sample(int slot) : slot(slot) {}
  virtual ~Sample() = default;

  SampleInfo info;
  const int slot;

  // For Feed::take() and Feed::target(). Floats: [C,H,W] in [0, 1]; bytes: the frame in its own
  // format, [H,W,C]. One of each pair is empty. Call them again for each frame.
  virtual std::span<float> input() { return {}; }
  virtual std::span<std::uint8_t> input_bytes() { return {}; }
  virtual std::span<float> target() { return {}; }  ///< shaped as the network's output
  virtual std::span<std::uint8_t> target_bytes() { return {}; }

  /// The memory of input and target; the second is empty if the target is the input.
  std::array<std::span<std::byte>, 2> memory() {
    const auto one = [](std::span<float> floats, std::span<std::uint8_t> bytes) {
      return floats.empty() ? std::as_writable_bytes(bytes) : std::as_writable_bytes(floats);
    };
    const auto in = one(input(), input_bytes()), out = one(target(), target_bytes());
    return {in, out.data() == in.data() ? std::span<std::byte>() : out};
  }
  std::size_t bytes() { return memory()[0].size() + memory()[1].size(); }
  /// Copies memory(), bytes() in all, to or from one block.
  void write_to(std::byte* block) {
    for (const std::span<std::byte> part : memory()) block = std::ranges::copy(part, block).out;
  }
  void read_from(const std::byte* block) {
    for (const std::span<std::byte> part : memory()) {
      std::copy_n(block, part.size(), part.begin());
      block += part.size();
    }
  }

  // For Observer: floats [C,H,W] on the CPU, valid during the call.
  virtual std::span<const float> shown_context() { return {}; }  ///< every frame of the input
  virtual std::span<const float> shown_input() { return {}; }    ///< the latest of these frames
  virtual std::span<const float> shown_target() { return {}; }
  virtual std::span<const float> prediction() { return {}; }
};

/// Gives samples to stage 0, and targets to the stages that compute a loss. Stage 0's worker calls
/// poll(), take() and targets_known(); several replicas call one at a time, in sample order.
class Feed {
 public:
  enum class Status { ready, wait, end };
  virtual ~Feed() = default;

  /// Whether a sample can be taken. Blocks for at most about `patience`.
  virtual Status poll(std::chrono::microseconds patience) = 0;
  /// Fills info, input and, unless targets come late, target. Only after poll() returned ready.
  virtual void take(Sample& sample) = 0;

  // Late targets (PipelineOptions::late_targets):

  /// ready: the target of `sample` has been written; end: it never will be. Blocks for at most
  /// about `patience`. Called by the worker of each stage that computes a loss, and by stage 0's.
  virtual Status target(Sample&, std::chrono::microseconds) { return Status::ready; }
  /// ready once target() would not return wait for any sample taken. Blocks as target() does.
  virtual Status targets_known(std::chrono::microseconds) { return Status::ready; }
  /// Whether it works for targets; else they arrive with the stream.
  virtual bool computes_targets() const { return false; }
};

/// Sees each prediction, in sample order. Called by the last stage's worker (several replicas call
/// one at a time) on the hot path: must not allocate, lock or wait.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void shown(Sample&) {}
  /// The loss of the prediction is known: at once, unless targets come late. NaN: no target.
  virtual void predicted(Sample& sample, float loss) = 0;
};

}  // namespace millrace::engine
