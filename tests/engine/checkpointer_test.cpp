#include "engine/checkpointer.h"

#include <gtest/gtest.h>

#include <stdexcept>  // failures to write

#include "tests/engine/sample_feed.h"

namespace millrace::engine {
namespace {

const stages::ImageShape kShape{3, 8, 8};

TrainerOptions options_of(int stages, std::vector<int> cut, const std::string& optimizer) {
  stages::ModelSpec model;
  model.layers = 3;
  model.features = 4;
  model.kernel = 3;
  TrainerOptions options;
  options.network = stages::build_network(model, kShape);
  options.sample = kShape;
  options.schedule = "sequential";
  options.stages = stages;
  options.cut = std::move(cut);
  options.optimizer = {.kind = optimizer, .lr = 0.05, .momentum = 0.9};
  return options;
}

TEST(Checkpoint, GoingOnFromOneEqualsNeverHavingStopped) {
  for (const std::string& optimizer : stages::optimizer_names()) {
    Trainer whole(options_of(2, {2}, optimizer)), first(options_of(2, {2}, optimizer));
    SampleFeed all(whole, kShape, 40), part(first, kShape, 25);
    whole.run(all, nullptr);
    first.run(part, nullptr);
    TrainerOptions options = options_of(3, {1, 4}, optimizer);  // another cut
    options.weights = first.checkpoint();
    Trainer second(options);
    SampleFeed rest(second, kShape, 40, 25);
    second.run(rest, nullptr);
    expect_equal_bits(second.state(), whole.state());
  }
}

TEST(Checkpointer, SnapshotsAreWhatARunStoppedThereHolds) {
  Trainer stopped(options_of(3, {1, 4}, "adam")), running(options_of(3, {1, 4}, "adam"));
  SampleFeed ten(stopped, kShape, 10), many(running, kShape, 25);
  stopped.run(ten, nullptr);
  std::vector<stages::StateDict> written;
  Checkpointer checkpointer(
      3, 10, [&](int stage) { return running.checkpoint(stage); },
      [&](const stages::StateDict& state) { written.push_back(state); });
  PipelineOptions options;
  options.after_sample = [&](int stage, std::int64_t sample) {
    checkpointer.after_sample(stage, sample);
  };
  options.before_action = [&](int, const Action& action) {
    // Lets the writer take the first snapshot before the second can replace it.
    if (action.sample == 15) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  running.run(many, nullptr, options);
  EXPECT_EQ(checkpointer.finish(), "");
  ASSERT_EQ(written.size(), 2u);
  expect_equal_bits(written[0], stopped.checkpoint());
}

TEST(Checkpointer, TellsOfAFailureToWriteAndTrainsOn) {
  Checkpointer checkpointer(
      1, 1,
      [](int) {
        return stages::StateDict{{"a", at::ones({1})}};
      },
      [](const stages::StateDict&) { throw std::runtime_error("disk full"); });
  checkpointer.after_sample(0, 0);
  EXPECT_EQ(checkpointer.finish(), "disk full");
}

}  // namespace
}  // namespace millrace::engine
