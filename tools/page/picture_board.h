#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "io/source/frame.h"

namespace millrace::page {

struct PictureShape {
  int channels = 3;  ///< 3: RGB, 1: grey
  int height = 0;
  int width = 0;
  bool classes = false;  ///< its one channel holds classes, not grey; below 0: none

  std::size_t elements() const { return std::size_t(channels) * height * width; }
};

/// RGB of class `number`, 0 to 255, in Pascal VOC's colour map: the number's bits become the
/// highest bits of the three colours in turn. io::kNoClass is VOC's pale yellow.
inline std::array<std::uint8_t, 3> class_colour(int number) {
  std::array<std::uint8_t, 3> colour{};
  for (int bit = 7; number > 0; --bit, number >>= 3)
    for (int c = 0; c < 3; ++c) colour[std::size_t(c)] |= std::uint8_t((number >> c & 1) << bit);
  return colour;
}

/// One sample's pictures, float32 [channels][height][width] in [0, 1], or classes.
struct Pictures {
  std::int64_t sample = -1;
  PictureShape input_shape;
  PictureShape output_shape;  ///< of target and prediction; no size: they are not pictures
  std::vector<float> input = {}, target = {}, prediction = {};  ///< NaN target: there is none
};

/// One value whose ownership alternates between two threads: the viewer asks, the run fills it, the
/// viewer takes it and returns it. An atomic holds the turn: no waits, no half-written value.
template <class Value>
class Board {
 public:
  explicit Board(Value value = {}) : value_(std::move(value)) {}

  // Run: one thread at a time. The value to fill before show(); null unless a viewer has asked.
  Value* room() { return turn_.load(std::memory_order_acquire) == Turn::asked ? &value_ : nullptr; }
  /// Gives the filled value to the viewer.
  void show() { turn_.store(Turn::shown, std::memory_order_release); }

  // Viewer: one thread. Asks for the next value, unless it has already been requested or is ready.
  void ask() {
    if (turn_.load(std::memory_order_relaxed) == Turn::idle)
      turn_.store(Turn::asked, std::memory_order_release);
  }
  /// The filled value, the caller's until give_back(); null if none is ready.
  const Value* take() const {
    return turn_.load(std::memory_order_acquire) == Turn::shown ? &value_ : nullptr;
  }
  void give_back() { turn_.store(Turn::idle, std::memory_order_relaxed); }

 private:
  enum class Turn { idle, asked, shown };

  std::atomic<Turn> turn_{Turn::idle};
  Value value_;  ///< the run's while asked, the viewer's while shown
};

using FrameBoard = Board<io::Frame>;

/// Pictures of samples. Never allocates after construction.
class PictureBoard : public Board<Pictures> {
 public:
  /// Shapes as in Pictures. Throws std::invalid_argument for shapes that can't be shown.
  PictureBoard(const PictureShape& input, const PictureShape& output)
      : Board(blank(input, output)) {}

  /// Gives the buffers of room(), which now hold `sample`, to the viewer.
  void show(std::int64_t sample) {
    room()->sample = sample;
    Board::show();
  }

 private:
  static Pictures blank(const PictureShape& input, const PictureShape& output) {
    require_picture(input);
    if (output.width > 0 || output.height > 0) require_picture(output);
    Pictures pictures{.input_shape = input, .output_shape = output};
    pictures.input.resize(input.elements());
    pictures.target.resize(output.elements());
    pictures.prediction.resize(output.elements());
    return pictures;
  }
  static void require_picture(const PictureShape& shape) {
    if ((shape.channels != 1 && shape.channels != 3) || shape.elements() == 0)
      throw std::invalid_argument("a picture has 1 or 3 channels and at least one pixel");
  }
};

}  // namespace millrace::page
