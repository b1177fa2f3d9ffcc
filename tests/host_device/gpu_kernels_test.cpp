// A step program's kernels for a GPU: on the host device against double, and as NVRTC compiles
// them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <regex>

#include "capture/program/cuda/compiler.h"
#include "capture/program/cuda/plans.h"
#include "capture/program/program.h"

namespace millrace::program {
namespace {

const c10::Device kGpu(at::kCUDA, 0);

bool is_long() {
  return std::getenv("MILLRACE_LONG") != nullptr;
}

/// A convolution with its gradients; sizes that the host device has kernels of.
struct Case {
  std::int64_t kernel, stride, in, out, height, width;
  bool bias, relu, sigmoid, masked;

  static Case random(std::mt19937& random) {
    const auto up_to = [&](int most) { return std::int64_t(1 + random() % unsigned(most)); };
    static constexpr std::pair<int, int> sizes[] = {{1, 1}, {1, 2}, {3, 1}, {3, 2},
                                                    {5, 1}, {7, 2}, {15, 1}};
    const auto [kernel, stride] = sizes[random() % std::size(sizes)];
    const auto kind = random() % 3;
    return {kernel,    stride,           up_to(24),         up_to(24),
            up_to(40), up_to(40),        random() % 2 == 0, kind == 1,
            kind == 2, random() % 2 == 0};
  }
  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.in << "x" << c.height << "x" << c.width << " to " << c.out << ", kernel "
               << c.kernel << ", stride " << c.stride;
  }
};

struct Results {
  at::Tensor y, dx, dw, db;
};

Results compute(const Case& c, const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
                const at::Tensor& dy) {
  const std::vector<std::int64_t> stride{c.stride, c.stride}, padding{c.kernel / 2, c.kernel / 2};
  Results made;
  made.y = at::convolution(x, w, c.bias ? std::optional(b) : std::nullopt, stride, padding, {1, 1},
                           false, {0, 0}, 1);
  if (c.relu) made.y = at::relu(made.y);
  if (c.sigmoid) made.y = at::sigmoid(made.y);
  std::tie(made.dx, made.dw, made.db) =
      at::convolution_backward(dy, x, w, std::vector<std::int64_t>{c.out}, stride, padding, {1, 1},
                               false, {0, 0}, 1, {true, true, true});
  if (c.masked) made.dx = at::threshold_backward(made.dx, x, 0);
  return made;
}

void expect_near(const at::Tensor& got, const at::Tensor& wanted, const char* what) {
  const at::Tensor difference = got.cpu().to(at::kDouble) - wanted;
  const double error = difference.norm().item<double>() / (wanted.norm().item<double>() + 1e-30);
  EXPECT_LT(error, 2e-6) << what;
}

TEST(GpuKernels, EqualDoubleOnAnyShape) {
  std::mt19937 random(7);
  at::manual_seed(7);
  const int cases = is_long() ? 2000 : 150;
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    const Case c = Case::random(random);
    SCOPED_TRACE(testing::Message() << c);
    const auto strided = [&](std::int64_t size) { return (size - 1) / c.stride + 1; };
    const at::Tensor x = at::randn({1, c.in, c.height, c.width}),
                     w = at::randn({c.out, c.in, c.kernel, c.kernel}), b = at::randn({c.out}),
                     dy = at::randn({1, c.out, strided(c.height), strided(c.width)});
    const Results wanted =
        compute(c, x.to(at::kDouble), w.to(at::kDouble), b.to(at::kDouble), dy.to(at::kDouble));
    const at::Tensor on_gpu[] = {x.to(kGpu), w.to(kGpu), b.to(kGpu), dy.to(kGpu)};
    Arena arena(kGpu);
    Results got;
    Program program([&] { got = compute(c, on_gpu[0], on_gpu[1], on_gpu[2], on_gpu[3]); }, arena);
    program.run();
    expect_near(got.y, wanted.y, "forward");
    expect_near(got.dx, wanted.dx, "data gradient");
    expect_near(got.dw, wanted.dw, "weight gradient");
    expect_near(got.db, wanted.db, "bias gradient");
    for (const capture::OperationInfo& info : program.operations())
      EXPECT_NE(info.kernel, capture::kLibTorch) << info.name;
  }
}

/// For every generation that LibTorch's wheel knows from sm_80 on; no GPU is needed.
TEST(GpuKernels, CompileWithoutSpillsForEveryGeneration) {
  std::vector<std::string> names = {"add_up_parts", "squared_error",
                                    "squared_error_gradient"};
  std::vector<std::string> sizes = {"3, 1"};
  if (is_long()) sizes = {"1, 1", "1, 2", "3, 1", "3, 2", "5, 1", "7, 2", "15, 1"};
  for (const std::string& size : sizes) {
#define TILE(...)                                                                 \
  names.push_back("convolution<" + size +                                         \
                  ", false, millrace::gpu::Activation::relu, " #__VA_ARGS__ ">"); \
  names.push_back("convolution<" + size +                                         \
                  ", true, millrace::gpu::Activation::none, " #__VA_ARGS__ ">");
    MILLRACE_CONVOLUTION_TILES(TILE)
#undef TILE
#define TILE(...) names.push_back("weight_gradients<" + size + ", " #__VA_ARGS__ ">");
    MILLRACE_WEIGHT_GRADIENT_TILES(TILE)
#undef TILE
  }
  const std::vector<int> generations = {90, 80, 86, 87, 89, 100, 120};
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (std::size_t g = 0; g < generations.size(); ++g) {
      if (!is_long() && g != i % generations.size()) continue;
      const gpu::Compiled made = gpu::compile(names[i], generations[g], true);
      EXPECT_FALSE(std::regex_search(made.log, std::regex("[1-9][0-9]* bytes spill")))
          << names[i] << " for sm_" << generations[g] << ": " << made.log;
    }
  }
}

}  // namespace
}  // namespace millrace::program
