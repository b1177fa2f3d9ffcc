// A run without a network, to develop and test the page with.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "io/source/labels.h"
#include "io/source/synth_scene.h"
#include "tools/page/controls.h"
#include "tools/page/live_state.h"
#include "tools/page/picture_board.h"

namespace millrace::page {

struct InventedOptions {
  int size = 64;
  int stages = 4;
  double fps = 25;
  int classes = 0;  ///< above 0: target and prediction show this many, of brightness
};

/// A thread that "trains" on moving shapes at a fixed rate. Its prediction is a growing share of
/// the next frame; the losses are those of the pictures.
class InventedRun {
 public:
  explicit InventedRun(const InventedOptions& options);
  ~InventedRun();

  // Any thread.
  Snapshot look() const;
  PictureBoard& board() { return board_; }
  Controls& controls() { return controls_; }
  /// The source breaks off or comes back.
  void set_connected(bool connected);

 private:
  void train();
  void step();
  void draw_prediction();
  void note_losses();
  void note_times();
  void show();
  void obey();

  // The training thread's.
  const InventedOptions options_;
  const io::SynthScene scene_;
  std::mt19937 random_{1};
  std::vector<std::uint8_t> bytes_;
  std::vector<float> input_, target_, prediction_, mean_;
  std::int64_t number_ = 0;
  double learned_ = 0;  ///< 0: knows the mean frame; 1: all there is to know
  std::vector<engine::Histogram> compute_, handoff_;

  // Shared.
  PictureBoard board_;
  io::LiveLabels labels_{{"day", "night"}};
  Controls controls_{
      {.labels = {"day", "night"}, .hear_label = [this](auto text) { return labels_.hear(text); }}};
  mutable std::mutex mutex_;
  Snapshot now_;  ///< under mutex_
  std::atomic<bool> stop_{false}, connected_{true};
  std::thread thread_;
};

}  // namespace millrace::page
