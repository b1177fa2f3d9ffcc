// A step over slots computes what its stage computes, and slots keep samples apart.
#include "capture/stage_step.h"
#include "capture/devices.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

namespace millrace::capture {
namespace {

const stages::ImageShape kShape{3, 6, 8};

stages::Stage make_stage(stages::StageRange range) {
  stages::ModelSpec model;
  model.layers = 2;
  model.features = 4;
  model.kernel = 3;
  const auto network = stages::build_network(model, kShape);
  stages::Stage stage(network, range, {}, at::kCPU);
  stages::load_state(stage.parameters(), stages::initial_state(*network, 3));
  return stage;
}

at::Tensor picture(int n) {
  return at::full({1, 3, 6, 8}, 0.1f * float(n + 1));
}

TEST(StageStep, GivesEachSlotItsOwnSample) {
  SampleBuffers samples(3, {1, 3, 6, 8}, {});
  StageStep step(make_stage({0, 4, true, true}), make_eager_backend(at::kCPU), at::kCPU, samples,
                 nullptr, nullptr);
  step.prepare();
  for (int slot = 0; slot < 3; ++slot) {
    samples.input[slot].copy_(picture(slot));
    step.forward(slot, -1);
  }
  stages::Stage alone = make_stage({0, 4, true, true});
  for (int slot = 0; slot < 3; ++slot) {
    const auto kept = alone.forward({picture(slot)}, picture(slot));
    EXPECT_EQ(step.loss(slot), kept.loss.item<float>());
    EXPECT_EQ(0, std::memcmp(samples.prediction[slot].const_data_ptr<float>(),
                             kept.outputs[0].const_data_ptr<float>(), 3 * 6 * 8 * sizeof(float)));
  }
}

TEST(StageStep, SendsActivationsDownAndGradientsUp) {
  SampleBuffers samples(2, {1, 3, 6, 8}, {});
  Boundary boundary(2);
  StageStep first(make_stage({0, 2, true, false}), make_eager_backend(at::kCPU), at::kCPU, samples,
                  nullptr, &boundary);
  StageStep second(make_stage({2, 4, false, true}), make_eager_backend(at::kCPU), at::kCPU, samples,
                   &boundary, nullptr);
  first.prepare();
  second.prepare();
  samples.input[1].copy_(picture(5));
  first.forward(1, -1);
  EXPECT_EQ(boundary.activations.tensors[1][0].sizes(), at::IntArrayRef({1, 4, 6, 8}));
  second.forward(1, -1);
  second.backward(1, 1);
  ASSERT_TRUE(boundary.gradients.tensors[1].size() == 1);
  EXPECT_EQ(boundary.gradients.tensors[1][0].sizes(), boundary.activations.tensors[1][0].sizes());
  const auto before = first.stage().parameters().state();
  first.backward(1, 1);
  EXPECT_TRUE(at::equal(before[0].second, first.stage().parameters().state()[0].second))
      << "backward must not update";
  first.update();
  EXPECT_FALSE(at::equal(before[0].second, first.stage().parameters().state()[0].second));
}

TEST(StageStep, PreparingLeavesTheWeights) {
  SampleBuffers samples(2, {1, 3, 6, 8}, {1, 3, 6, 8});
  StageStep step(make_stage({0, 4, true, true}), make_eager_backend(at::kCPU), at::kCPU, samples,
                 nullptr, nullptr);
  const auto before = step.stage().parameters().state();
  step.prepare();
  EXPECT_TRUE(at::equal(before[0].second, step.stage().parameters().state()[0].second));
}

TEST(Devices, ACudaDeviceThatIsNotThereHasNoName) {
  if (cuda_devices() > 0) GTEST_SKIP() << "a CUDA device is here";
  EXPECT_EQ(cuda_device_name(0), "");
}

}  // namespace
}  // namespace millrace::capture
