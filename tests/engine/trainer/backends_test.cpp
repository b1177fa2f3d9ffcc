// Which stages share a device, and what each asks of it; on doubles, since no device is needed.
#include "engine/trainer/backends.h"

#include <gtest/gtest.h>

#include "tests/capture/double_stream.h"
#include "tests/engine/trained.h"

namespace millrace::engine {
namespace {

using Made = std::vector<std::unique_ptr<capture::Backend>>;

/// What was asked of capture::make_graph_backends().
struct Split {
  c10::Device device;
  std::vector<double> work;
  std::vector<capture::Backend*> made;
};

/// Doubles on partitions, which note in `splits` what they are asked for.
TrainerOptions partitioned(TrainerOptions options, std::vector<Split>& splits) {
  options.sharing = Sharing::partitions;
  options.capture = Capture::graph;
  options.make_backend = [](c10::Device) { return capture::make_double_stream(true); };
  options.make_backends = [&splits](c10::Device device, const std::vector<double>& work) {
    Made backends;
    Split split{device, work, {}};
    for (std::size_t i = 0; i < work.size(); ++i) {
      backends.push_back(capture::make_double_stream(true));
      split.made.push_back(backends.back().get());
    }
    splits.push_back(split);
    return backends;
  };
  return options;
}

Device gpu(int index) {
  return {.cuda = true, .index = index};
}

Device core(int index) {
  return {.cuda = false, .index = index};
}

std::vector<double> sums(const std::vector<double>& ms, const std::vector<int>& cut) {
  std::vector<double> sums(cut.size() + 1, 0.0);
  for (std::size_t module = 0, stage = 0; module < ms.size(); ++module) {
    if (stage < cut.size() && int(module) == cut[stage]) ++stage;
    sums[stage] += ms[module];
  }
  return sums;
}

TEST(Backends, StagesShareTheDeviceTheyAreOn) {
  TrainerOptions options = small("partime", 6, {1, 2, 3, 4, 5});
  EXPECT_TRUE(stages_sharing(options).empty());
  options.devices = {gpu(1), gpu(0), core(0), gpu(1), core(0), gpu(2)};
  EXPECT_EQ(stages_sharing(options), (std::vector<std::vector<int>>{{0, 3}}));
  options.devices = {gpu(1), gpu(0), gpu(1), gpu(0), gpu(1), core(1)};
  EXPECT_EQ(stages_sharing(options), (std::vector<std::vector<int>>{{1, 3}, {0, 2, 4}}));
  EXPECT_FALSE(splits_device(options));
  options.sharing = Sharing::partitions;
  EXPECT_TRUE(splits_device(options));
  options.devices = {gpu(0), gpu(1), gpu(2), gpu(3), gpu(4), core(0)};
  EXPECT_FALSE(splits_device(options));
}

TEST(Backends, EachDeviceIsSplitOnceByItsStagesWork) {
  std::vector<Split> splits;
  TrainerOptions options = partitioned(small("partime", 5, {1, 3, 4, 6}), splits);
  options.devices = {gpu(0), gpu(1), gpu(0), gpu(2), gpu(1)};
  options.module_ms = {1, 2, 4, 8, 16, 32, 64, 128};
  const Made backends = make_backends(options, 5, true);
  ASSERT_EQ(splits.size(), 2u);
  EXPECT_EQ(splits[0].device.index(), 0);
  EXPECT_EQ(splits[0].work, (std::vector<double>{1, 8}));
  EXPECT_EQ(splits[1].device.index(), 1);
  EXPECT_EQ(splits[1].work, (std::vector<double>{6, 192}));
  ASSERT_EQ(backends.size(), 5u);
  EXPECT_EQ(backends[0].get(), splits[0].made[0]);
  EXPECT_EQ(backends[2].get(), splits[0].made[1]);
  EXPECT_EQ(backends[1].get(), splits[1].made[0]);
  EXPECT_EQ(backends[4].get(), splits[1].made[1]);
  EXPECT_TRUE(backends[3]);
}

TEST(Backends, StagesThatAreNotRecordedTakeNoShare) {
  std::vector<Split> splits;
  TrainerOptions options = partitioned(small("partime", 4, {2, 4, 6}), splits);
  options.module_ms = {1, 2, 4, 8, 16, 32, 64, 128};
  options.records = [](int stage) { return stage == 1 || stage == 3; };
  const Made backends = make_backends(options, 4, true);
  ASSERT_EQ(splits.size(), 1u);
  EXPECT_EQ(splits[0].work, (std::vector<double>{12, 192}));
  for (const int stage : {0, 2}) EXPECT_FALSE(backends[stage]->records());
  for (const int stage : {1, 3}) EXPECT_TRUE(backends[stage]->records());
}

TEST(Backends, PlainStreamsSplitNothing) {
  std::vector<Split> splits;
  TrainerOptions options = partitioned(small("partime", 2, {4}), splits);
  options.sharing = Sharing::streams;
  Trainer trainer(options);
  EXPECT_TRUE(splits.empty());
  EXPECT_TRUE(trainer.module_ms().empty());
}

TEST(Backends, RecordedStagesOnPartitionsEqualTheOracle) {
  std::vector<Split> splits;
  const TrainerOptions options = partitioned(small("partime", 4, {2, 4, 6}), splits);
  Trainer trainer(options);
  SampleFeed feed(kShape, 60);
  LossLog log;
  trainer.run(feed, &log);
  ASSERT_EQ(splits.size(), 1u);
  EXPECT_EQ(splits[0].work, sums(trainer.module_ms(), {2, 4, 6}));  // measured, as nobody gave them
  const Trained expected = by_oracle(options, 60, 1, /*as_recorded=*/true);
  expect_equal_bits(trainer.state(), expected.weights);
  EXPECT_EQ(log.losses, expected.losses);
}

TEST(Backends, ANewCutIsANewSplit) {
  std::vector<Split> splits;
  TrainerOptions options = partitioned(small("partime", 2, {4}), splits);
  options.module_ms = {1, 2, 4, 8, 16, 32, 64, 128};
  Trainer trainer(options);
  trainer.recut({6});
  ASSERT_EQ(splits.size(), 2u);
  EXPECT_EQ(splits[0].work, (std::vector<double>{15, 240}));
  EXPECT_EQ(splits[1].work, (std::vector<double>{63, 192}));
}

TEST(Backends, WhatCanNotBeSplitIsAnError) {
  std::vector<Split> splits;
  TrainerOptions options = partitioned(small("partime", 2, {4}), splits);
  options.make_backends = [](c10::Device, const std::vector<double>&) -> Made {
    throw std::invalid_argument("too few SMs");
  };
  try {
    Trainer trainer(options);
    ADD_FAILURE() << "was taken";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(),
                 "pipeline.sharing: cpu can't be split among its stages: too few SMs");
  }
}

TEST(Backends, PartitionsAreForRecordedSteps) {
  std::vector<Split> splits;
  TrainerOptions options = partitioned(small("partime", 2, {4}), splits);
  options.capture = Capture::eager;
  EXPECT_THROW(Trainer{options}, std::invalid_argument);
  options.capture = Capture::automatic;
  options.schedule = "pipedream";
  options.replicas = {2, 1};
  EXPECT_THROW(Trainer{options}, std::invalid_argument);
  EXPECT_TRUE(splits.empty());
  options.make_backend = nullptr;  // cores share nothing, so nothing is asked
  EXPECT_NO_THROW(Trainer{options});
}

}  // namespace
}  // namespace millrace::engine
