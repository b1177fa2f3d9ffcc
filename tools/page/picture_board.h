// How the latest pictures get from training to those who look on, without training ever waiting.
#pragma once

#include <atomic>     // whose turn it is
#include <cstdint>    // sample numbers
#include <stdexcept>  // shapes that are no pictures
#include <vector>     // pixels

namespace millrace::page {

struct PictureShape {
  int channels = 3;  ///< 3: RGB, 1: grey
  int height = 0;
  int width = 0;
  bool classes = false;  ///< its one channel's values are no grey but classes, below 0 none

  std::size_t elements() const { return std::size_t(channels) * height * width; }
};

/// One sample's pictures, float32 [channels][height][width] in [0, 1], or classes.
struct Pictures {
  std::int64_t sample = -1;
  PictureShape input_shape;
  PictureShape output_shape;  ///< of target and prediction; no size: they are no pictures
  std::vector<float> input, target, prediction;  ///< a target of nan: there is none
};

/// One set of pictures that passes to and fro: the onlooker asks, training fills it when it next
/// has a sample, the onlooker takes it and gives it back. A word says whose it is, so neither side
/// can find it half written, and neither waits: a training side that has not been asked reads that
/// word and goes on. Never allocates after construction.
class PictureBoard {
 public:
  /// `output` of no size: target and prediction are no pictures. Throws std::invalid_argument
  /// for what cannot be shown as a picture.
  PictureBoard(const PictureShape& input, const PictureShape& output) {
    require_picture(input);
    if (output.width > 0 || output.height > 0) require_picture(output);
    pictures_.input_shape = input;
    pictures_.output_shape = output;
    pictures_.input.resize(input.elements());
    pictures_.target.resize(output.elements());
    pictures_.prediction.resize(output.elements());
  }

  // Training: one thread at a time.
  /// Null unless somebody wants pictures: then room to fill before show().
  Pictures* room() {
    return turn_.load(std::memory_order_acquire) == Turn::asked ? &pictures_ : nullptr;
  }
  /// What room() gave now holds `sample`, and is no longer the caller's.
  void show(std::int64_t sample) {
    pictures_.sample = sample;
    shown_.store(shown_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    turn_.store(Turn::shown, std::memory_order_release);
  }

  // The onlooker: one thread.
  /// Asks for the next sample's pictures; nothing if they are asked for or there already.
  void ask() {
    if (turn_.load(std::memory_order_relaxed) == Turn::idle) {
      turn_.store(Turn::asked, std::memory_order_release);
    }
  }
  /// What training has shown, the caller's until give_back(); null if nothing yet.
  const Pictures* take() const {
    return turn_.load(std::memory_order_acquire) == Turn::shown ? &pictures_ : nullptr;
  }
  void give_back() { turn_.store(Turn::idle, std::memory_order_relaxed); }

  /// How often training filled it. Any thread.
  std::int64_t shown() const { return shown_.load(std::memory_order_relaxed); }

 private:
  static void require_picture(const PictureShape& shape) {
    if ((shape.channels != 1 && shape.channels != 3) || shape.elements() == 0)
      throw std::invalid_argument("a picture has 1 or 3 channels and at least one pixel");
  }

  enum class Turn { idle, asked, shown };

  std::atomic<Turn> turn_{Turn::idle};
  std::atomic<std::int64_t> shown_{0};
  Pictures pictures_;  ///< training's while asked, the onlooker's while shown
};

}  // namespace millrace::page
