// A step that computes nothing: for tests of the engine alone.
#pragma once

#include "capture/step.h"

namespace millrace::engine {

class EmptyStep : public capture::Step {
 public:
  void prepare() override {}
  void forward(int, std::int64_t) override {}
  void compare(int) override {}
  void discard(int) override {}
  void leave_out(int) override {}
  void recompute(int) override {}
  void backward(int, int) override {}
  void backward_input(int, int) override {}
  void backward_weight(int) override {}
  void update() override {}
  void skip_update() override {}
  void take_snapshot() override {}
  void roll_back() override {}
  void set_rate(double) override {}
  float loss(int) const override { return 1.0f; }
  std::int64_t skipped() const override { return 0; }
};

}  // namespace millrace::engine
