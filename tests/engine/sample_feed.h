#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "engine/trainer/trainer.h"
#include "tests/engine/counted_feed.h"

namespace millrace::engine {

/// Sample n of an invented stream, equal at every call.
inline std::pair<at::Tensor, at::Tensor> sample_at(std::int64_t n,
                                                   const stages::ImageShape& shape) {
  const auto generator = at::detail::createCPUGenerator(std::uint64_t(1000 + n));
  const at::Tensor x = at::rand(shape.sizes(), generator);
  return {x, x};
}

/// Gives samples [begin, end) of the stream to a trainer, without threads.
class SampleFeed final : public CountedFeed {
 public:
  explicit SampleFeed(stages::ImageShape shape, std::int64_t end, std::int64_t begin = 0)
      : CountedFeed(end, begin), shape_(shape) {}
  std::function<bool(std::int64_t)> has_target;                 ///< empty: every sample has one
  std::function<bool(std::int64_t)> spoiled;                    ///< has a NaN; empty: none
  std::function<void(std::int64_t, std::span<float>)> rewrite;  ///< changes inputs; empty: none

 private:
  void fill(std::int64_t n, Sample& sample) override {
    const at::Tensor x = sample_at(n, shape_).first;
    for (const std::span<float> to : {sample.input(), sample.target()})
      std::copy_n(x.const_data_ptr<float>(), to.size(), to.begin());
    if (spoiled && spoiled(n)) sample.input()[0] = std::numeric_limits<float>::quiet_NaN();
    if (rewrite) rewrite(n, sample.input());
    sample.info.has_target = !has_target || has_target(n);
  }
  stages::ImageShape shape_;
};

/// The spoiled samples of SampleFeed, for the oracle.
inline std::pair<at::Tensor, at::Tensor> spoiled_at(std::int64_t n, const stages::ImageShape& shape,
                                                    bool spoiled) {
  const auto [x, same] = sample_at(n, shape);
  if (spoiled) x.data_ptr<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  return {x, x};
}

class LossLog final : public Observer {
 public:
  void predicted(Sample&, float loss) override { losses.push_back(loss); }
  std::vector<float> losses;
};

const stages::ImageShape kTiny{3, 8, 8};

/// Six modules, the first, third and fifth with weights.
inline TrainerOptions tiny(int stages, std::vector<int> cut, const std::string& optimizer = "sgd") {
  TrainerOptions options;
  options.network = stages::build_network({.layers = 3, .features = 4, .kernel = 3}, kTiny);
  options.sample = kTiny;
  options.stages = stages;
  options.cut = std::move(cut);
  options.optimizer.kind = optimizer;
  return options;
}

/// The stages of a schedule, replicas tied.
inline std::vector<stages::Stage> tied_stages(const TrainerOptions& options,
                                              const Schedule& schedule) {
  std::vector<stages::Stage> stages = build_stages(options, schedule);
  std::vector<stages::Stage*> places;
  for (stages::Stage& stage : stages) places.push_back(&stage);
  tie_replicas(schedule, places);
  return stages;
}

inline void expect_equal_bits(const stages::StateDict& a, const stages::StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(at::equal(a[i].second, b[i].second)) << a[i].first << " differs";
  }
}

}  // namespace millrace::engine
