// Scene A changes to scene B and back. Compares three predictors of the next frame: a network that
// keeps learning, the same network frozen after the first scene, and a copy of the previous frame.
// drift [FRAMES PER SCENE] [CHART.png]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "engine/trainer/trainer.h"
#include "io/plot/plot.h"
#include "io/queue/planar.h"
#include "io/source/synth_scene.h"

using namespace millrace;

constexpr int kSide = 32;
constexpr std::size_t kFloats = 3 * kSide * kSide;
using Losses = std::vector<double>;

/// Scenes A, B, A, `frames` each; each frame is predicted from the previous one.
class Scenes : public engine::Feed, public engine::Observer {
 public:
  Scenes(engine::TrainerOptions options, int frames) : frames_(frames), trainer_(options) {}

  stages::StateDict learn(int samples) {
    trainer_.run(*this, this, {.limit = samples});
    return trainer_.state();
  }
  Losses losses, copied;  ///< of the network; of copying the previous frame

 private:
  Status poll(std::chrono::microseconds patience) override { return Status::ready; }
  void take(engine::Sample& sample) override {
    std::ranges::copy(picture_, sample.input().begin());
    draw(number_++);
    std::ranges::copy(picture_, sample.target().begin());
  }
  void predicted(engine::Sample& sample, float loss) override {
    const std::span<const float> before = sample.shown_input(), after = sample.shown_target();
    double sum = 0;
    for (std::size_t i = 0; i < kFloats; ++i) sum += std::pow(after[i] - before[i], 2);
    losses.push_back(loss);
    copied.push_back(sum / kFloats);
  }
  void draw(int number) {
    io::Frame frame{.width = kSide, .height = kSide, .channels = 3};
    (number / frames_ == 1 ? b_ : a_)(number, frame.pixels);
    io::to_planar(frame, picture_.data());
  }

  io::SynthScene a_ = io::synth_scene({.width = kSide, .height = kSide, .speed = 3, .seed = 1});
  io::SynthScene b_ = io::synth_scene({.width = kSide, .height = kSide, .speed = 3, .seed = 2});
  const int frames_;
  engine::Trainer trainer_;
  int number_ = 0;
  std::vector<float> picture_ = std::vector<float>(kFloats);  ///< black before the first frame
};

double mean(const Losses& losses, int begin, int end) {
  double sum = 0;
  for (int i = begin; i < end; ++i) sum += losses[i] / (end - begin);
  return sum;
}

io::Series curve(const char* label, const Losses& losses, int begin, bool dashed) {
  constexpr int kWidth = 20;  // frames averaged per point
  io::Series series{.label = label, .points = {}, .dashed = dashed};
  for (int i = begin; i + kWidth <= int(losses.size()); i += kWidth)
    series.points.push_back({i + kWidth / 2, mean(losses, i, i + kWidth)});
  return series;
}

int main(int argc, char** argv) {
  const int frames = std::max(40, argc > 1 ? std::atoi(argv[1]) : 1000), all = 3 * frames;
  engine::TrainerOptions options{.sample = {3, kSide, kSide}, .target_is_input = false, .cut = {4}};
  options.network = stages::build_network({.layers = 4}, options.sample);
  options.optimizer = {.kind = "adam", .lr = 0.001};
  options.correction.kind = "local";
  Scenes learning(options, frames), first(options, frames);
  learning.learn(all);
  options.weights = first.learn(frames);
  options.optimizer = {.kind = "sgd", .lr = 0};
  Scenes frozen(options, frames);
  frozen.learn(all);

  std::printf("squared error    goes on learning  frozen after A  frame before\n");
  for (int begin : {frames - 20, frames, 2 * frames - 20, 2 * frames, all - 20})
    std::printf("%c, %-11s  %16.4f  %14.4f  %12.4f\n", begin / frames == 1 ? 'B' : 'A',
                begin % frames ? "last 20" : "first 20", mean(learning.losses, begin, begin + 20),
                mean(frozen.losses, begin, begin + 20), mean(frozen.copied, begin, begin + 20));
  io::write_chart({.title = "Scenes A, B and A again: error of the predicted next frame",
                   .x_label = "frame",
                   .y_label = "mean squared error",
                   .log_y = true,
                   .series = {curve("goes on learning", learning.losses, 1, false),
                              curve("frozen after A", frozen.losses, frames, false),
                              curve("frame before", frozen.copied, 1, true)}},
                  argc > 2 ? argv[2] : "drift.png");
}
