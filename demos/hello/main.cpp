// The engine as a library: a network of two stages on two cores learns stripes that wander.
#include <millrace/engine/trainer/trainer.h>  // the engine
#include <cstdio>                     // the loss
using namespace millrace;

struct Stripes : engine::Feed, engine::Observer {
  Status poll(std::chrono::microseconds patience) override { return Status::ready; }
  void take(int slot, engine::SampleInfo&) override {
    for (int i = 0; i < 32 * 32; ++i) trainer.input(slot)[i] = phase++ % 33 < 8;
  }
  void predicted(const engine::SampleInfo& info, int, float loss) override {
    if (info.sample % 50 == 49) std::printf("frame %3d  loss %.4f\n", int(info.sample + 1), loss);
  }
  int phase = 0;
  engine::Trainer trainer{
      {.network = stages::build_network({.layers = 3, .out_channels = 1}, {1, 32, 32}),
       .sample = {1, 32, 32},
       .optimizer = {.kind = "adam", .lr = 0.002}}};
};

int main() {
  Stripes stripes;
  stripes.trainer.run(stripes, &stripes, {.limit = 300});
}
