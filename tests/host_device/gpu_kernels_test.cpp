// A step program's kernels for a GPU: on the host device against double, and as NVRTC compiles
// them.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <thread>

#include "capture/program/cuda/cache.h"
#include "capture/program/cuda/compiler.h"
#include "capture/program/cuda/plans.h"
#include "capture/program/operations/convolution.h"
#include "capture/program/program.h"
#include "stages/bytes.h"
#include "tests/capture/program/operators.h"
#include "tests/io/test_folder.h"
#include "tests/repetitions.h"

namespace millrace::program {
namespace {

/// A convolution with its gradients; windows that the host device has kernels of.
struct Case {
  std::vector<std::int64_t> kernel, stride, dilation, padding;
  std::int64_t groups, in, out, height, width;
  bool bias, relu, sigmoid, masked;

  static Case random(std::mt19937& random) {
    const auto up_to = [&](int most) { return std::int64_t(1 + random() % unsigned(most)); };
    static const std::vector<Case> windows = {
        {{1, 1}, {1, 1}, {1, 1}, {0, 0}}, {{1, 1}, {2, 2}, {1, 1}, {0, 0}},
        {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, {{3, 3}, {2, 2}, {1, 1}, {1, 1}},
        {{5, 5}, {1, 1}, {1, 1}, {2, 2}}, {{2, 3}, {1, 2}, {3, 1}, {0, 2}},
        {{7, 7}, {2, 2}, {1, 1}, {3, 3}}, {{15, 15}, {1, 1}, {1, 1}, {7, 7}}};
    Case c = windows[random() % windows.size()];
    const bool wide = random() % 3 == 0;  // channels for tensor cores
    c.groups = random() % 4 == 0 ? up_to(wide ? 2 : 3) : 1;
    c.in = c.groups * (wide ? 15 + up_to(20) : up_to(24));
    c.out = c.groups * (wide ? 15 + up_to(20) : up_to(24));
    if (random() % 8 == 0) c.groups = c.in = c.out;
    c.height = 3 + up_to(wide ? 16 : 36);
    c.width = up_to(wide ? 16 : 36);
    const auto kind = random() % 3;
    c.bias = random() % 2 == 0, c.relu = kind == 1, c.sigmoid = kind == 2;
    c.masked = random() % 2 == 0;
    return c;
  }
  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.in << "x" << c.height << "x" << c.width << " to " << c.out << ", kernel "
               << c.kernel << ", stride " << c.stride << ", " << c.groups << " groups";
  }
};

/// Of {x, w, b, dy}: {y, dx, dw, db}.
Tensors compute(const Case& c, const Tensors& t) {
  Tensor y = at::convolution(t[0], t[1], c.bias ? std::optional(t[2]) : std::nullopt, c.stride,
                             c.padding, c.dilation, false, {0, 0}, c.groups);
  if (c.relu) y = at::relu(y);
  if (c.sigmoid) y = at::sigmoid(y);
  auto [dx, dw, db] =
      at::convolution_backward(t[3], t[0], t[1], std::vector<std::int64_t>{c.out}, c.stride,
                               c.padding, c.dilation, false, {0, 0}, c.groups, {true, true, true});
  if (c.masked) dx = at::threshold_backward(dx, t[0], 0);
  return {y, dx, dw, db};
}
Operators operators_of(const Case& c, Tensors given) {
  return {[c](const Tensors& t) { return compute(c, t); }, std::move(given)};
}

/// Of the kernels that could do it, one by chance. \returns their names.
std::vector<std::string> take_any(std::mt19937& random, const Case& c, const at::Tensor& x,
                                  const at::Tensor& dy, kernels::Precision precision) {
  const auto taps = [&](std::size_t side) {
    return kernels::Taps{int(c.kernel[side]), int(c.stride[side]), int(c.padding[side]),
                         int(c.dilation[side])};
  };
  std::vector<std::string> taken;
  for (const kernels::Pass pass :
       {kernels::Pass::kForward, kernels::Pass::kDataGradient, kernels::Pass::kWeightGradient}) {
    kernels::Convolution convolution{.pass = pass,
                                     .input = layout_of(x),
                                     .output = layout_of(dy),
                                     .kernel = int(c.kernel[0]),
                                     .stride = int(c.stride[0]),
                                     .groups = int(c.groups),
                                     .precision = precision};
    const bool usual = c.kernel[0] == c.kernel[1];
    if (!usual) convolution.window = {taps(0), taps(1)};
    if (pass == kernels::Pass::kForward)
      convolution.activation = c.relu      ? kernels::Activation::kRelu
                               : c.sigmoid ? kernels::Activation::kSigmoid
                                           : kernels::Activation::kNone;
    convolution.masked = pass == kernels::Pass::kDataGradient && c.masked;
    const KernelChoice choice = kernel_choice(convolution);
    if (choice.names.empty()) continue;
    taken.push_back(choice.names[random() % choice.names.size()]);
    gpu::take_choices({{choice.task, taken.back()}});
  }
  return taken;
}

/// On the device, by chance at an address that no four floats begin at.
at::Tensor put(std::mt19937& random, const at::Tensor& x) {
  const std::int64_t offset = random() % 2;
  const at::Tensor memory = at::empty({x.numel() + offset}, x.options().device(kGpu));
  return memory.slice(0, offset).view(x.sizes()).copy_(x);
}

class AnyGpuConvolution : public testing::TestWithParam<kernels::Precision> {};

TEST_P(AnyGpuConvolution, EqualsDouble) {
  static constexpr double errors[] = {2e-6, 6e-4, 6e-3};  // a number's rounding, roughly
  std::mt19937 random(7);
  at::manual_seed(7);
  const int cases = is_long() ? 2000 : 40;
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    const Case c = Case::random(random);
    SCOPED_TRACE(testing::Message() << c);
    const at::Tensor x = at::randn({1, c.in, c.height, c.width}),
                     w = at::randn({c.out, c.in / c.groups, c.kernel[0], c.kernel[1]}),
                     b = at::randn({c.out});
    const at::Tensor dy = at::randn_like(
        at::convolution(x, w, {}, c.stride, c.padding, c.dilation, false, {0, 0}, c.groups));
    const std::vector<std::string> taken = take_any(random, c, x, dy, GetParam());
    SCOPED_TRACE(testing::PrintToString(taken));
    Tensors on_gpu, squares;
    for (const Tensor& t : {x, w, b, dy}) {
      on_gpu.push_back(put(random, t));
      squares.push_back(t.to(at::kDouble).square());
    }
    const Made made = by_program(operators_of(c, on_gpu), kGpu,
                                 {.numerics = {.precision = GetParam(), .tuned = true}});
    const Tensors wanted = in_double(operators_of(c, {x, w, b, dy}));
    Case plain = c;
    plain.relu = plain.sigmoid = plain.masked = false;
    const Tensors sums = compute(plain, squares);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      // What terms of random signs sum up to: sums that meet near zero say nothing of rounding. A
      // sigmoid's slope is at most a quarter.
      const double typical = sums[i].sum().sqrt().item<double>() * (i == 0 && c.sigmoid ? 0.25 : 1);
      const double most = i == 3 ? 2e-6 : errors[int(GetParam())];  // a bias's: a sum in float32
      EXPECT_LT(error(made.results[i], wanted[i], typical), most) << i;
    }
    std::string kernels;
    for (const capture::OperationInfo& info : made.operations) {
      EXPECT_NE(info.kernel, capture::kLibTorch) << info.name;
      kernels += info.kernel + "\n";
    }
    for (const std::string& name : taken)
      EXPECT_NE(kernels.find(name + "\n"), kernels.npos) << name;
  }
}
TEST_P(AnyGpuConvolution, KeepsANaN) {
  const Case c{{3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, 16, 16, 8, 8, false, false, false, false};
  std::mt19937 random(3);
  for (int i = 0; i < 6; ++i) {
    at::Tensor x = at::randn({1, 16, 8, 8}), w = at::randn({16, 16, 3, 3}), dy = at::randn_like(x);
    for (at::Tensor* of : {&x, &dy})  // as a GPU has it
      of->data_ptr<float>()[5 * 64 + 4 * 8 + 4] = std::bit_cast<float>(0x7fffffffu);
    const Operators convolution = operators_of(c, {x, w, at::zeros({16}), dy});
    take_any(random, c, x, dy, GetParam());
    const Tensors wanted = convolution.body(convolution.given),
                  got = by_program(convolution, kGpu,
                                   {.numerics = {.precision = GetParam(), .tuned = true}})
                            .results;
    for (const std::size_t i : {0, 1}) EXPECT_TRUE(got[i].isnan().equal(wanted[i].isnan())) << i;
    EXPECT_TRUE(got[2][5].isnan().all().item<bool>());
  }
}
INSTANTIATE_TEST_SUITE_P(GpuKernels, AnyGpuConvolution,
                         testing::Values(kernels::Precision::kFloat32, kernels::Precision::kTf32,
                                         kernels::Precision::kBf16),
                         [](const auto& info) {
                           return std::string(kernels::kPrecisionNames[int(info.param)]);
                         });

/// A cache folder of a test's own.
class GpuChoices : public io::FolderTest {
 protected:
  GpuChoices() { setenv("XDG_CACHE_HOME", cache_.c_str(), 1); }
  ~GpuChoices() override { setenv("XDG_CACHE_HOME", before_.c_str(), 1); }
  /// How often kernels were timed to make this choice.
  int timed(const std::string& task, std::size_t wanted) {
    int count = 0;
    const std::size_t chosen = gpu::choose(task, {"slow", "quick", "slower"}, [&](std::size_t i) {
      ++count;
      return i == 1 ? 1.0 : 2.0 + double(i);
    });
    EXPECT_EQ(chosen, wanted);
    return count;
  }

  const std::string cache_ = folder / "cache";
  const std::string before_ =
      std::getenv("XDG_CACHE_HOME") ? std::getenv("XDG_CACHE_HOME") : std::string();
};

TEST_F(GpuChoices, AreTimedOnceAndGiveWayToACheckpoints) {
  EXPECT_EQ(timed("a", 1), 3);
  EXPECT_EQ(timed("a", 1), 0);
  gpu::take_choices({{"a", "slower"}, {"b", "gone"}});
  EXPECT_EQ(timed("a", 2), 0);
  EXPECT_EQ(timed("b", 1), 3) << "a kernel that is none any more";
  EXPECT_EQ(gpu::choices().at("b"), "quick");
}

TEST_F(GpuChoices, SurviveACacheThatIsDamagedOrCannotBeWritten) {
  std::string content;
  gpu::write_cached("key", "content");
  EXPECT_TRUE(gpu::read_cached("key", content));
  EXPECT_EQ(content, "content");
  EXPECT_FALSE(gpu::read_cached("another key", content));
  for (const auto& file : std::filesystem::recursive_directory_iterator(cache_)) {
    if (file.is_regular_file()) std::ofstream(file.path(), std::ios::app) << "more";
  }
  EXPECT_FALSE(gpu::read_cached("key", content));
  gpu::write_cached("key", "content");
  EXPECT_TRUE(gpu::read_cached("key", content));
  std::filesystem::remove_all(cache_);
  std::ofstream(cache_) << "a file, where a folder should be";
  testing::internal::CaptureStderr();
  EXPECT_EQ(timed("c", 1), 3);
  EXPECT_EQ(timed("d", 1), 3);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

/// All kernels of a tile: of windows, products and directions each by itself, or one of each kind.
std::vector<std::string> every_kernel() {
  const std::vector<std::string> windows = {"3, 3, 1, 1, 1, 1, 1, 1", "5, 5, 1, 1, 1, 1, 2, 2",
                                            "1, 1, 1, 1, 1, 1, 0, 0", "3, 3, 2, 2, 1, 1, 1, 1",
                                            "7, 7, 2, 2, 1, 1, 3, 3", "15, 15, 1, 1, 1, 1, 7, 7"};
  std::vector<std::string> names(
      {"add_up_parts", "squared_error", "squared_error_gradient", "channel_sums", "column_sums",
       "layer_norm_weight_gradients", "look_at_gradient", "measure_step", "pool", "pool_gradient",
       "softmax<512>", "softmax_gradient<512>", "norm_parts<4, 512>", "norm_gradient_parts<4, 512>",
       "plain_convolution<millrace::gpu::Window<" + windows[0] + ">, true>",
       "plain_weight_gradient<millrace::gpu::Window<" + windows[0] + ">>"});
  for (const char* const function : {"copy", "gelu_tanh_gradient", "elu", "divide"})
    names.push_back(std::string("map<millrace::kernels::Function::") + function + ", 4>");
  for (const char* const how : {"whole", "in_parts", "frozen"}) {
    for (const char* const kernel : {"norm", "norm_gradient"})
      names.push_back(std::string(kernel) + "<millrace::gpu::Norm::" + how + ", 4, 512>");
  }
  const char* const rules[] = {"none", "discrepancy", "weight_prediction", "gap_aware", "dc_asgd"};
  for (std::size_t i = 0; i < 15; i += is_long() ? 1 : 4)
    names.push_back("update<" + std::to_string(std::array{0, 2, 3}[i % 3]) +
                    ", millrace::stages::CorrectionRule::" + rules[i % 5] + ">");
  std::size_t turn = 0;
  const auto add = [&](const std::string& kernel, bool directions,
                       std::vector<std::string> products, const std::string& tile) {
    std::vector<std::string> all;
    for (std::size_t w = 0; w < (products[0] == "fma" ? windows.size() : 4); ++w) {
      for (const std::string& product : products) {
        for (const char* const direction : {", false", ", true"}) {
          if (directions || direction[2] == 'f')
            all.push_back(kernel + "<millrace::gpu::Window<" + windows[w] + ">" +
                          (directions ? direction : "") + ", millrace::gpu::Products::" + product +
                          ", " + tile + ">");
        }
      }
    }
    if (is_long()) return void(names.insert(names.end(), all.begin(), all.end()));
    names.push_back(all[turn++ * 5 % all.size()]);
  };
  const std::vector<std::string> fma = {"fma"}, tensor = {"exact_tf32", "tf32", "half"};
#define TILE(...) add("convolution", true, fma, #__VA_ARGS__);
  MILLRACE_FMA_TILES(TILE)
#undef TILE
#define TILE(...) add("convolution", true, tensor, #__VA_ARGS__);
  MILLRACE_TENSOR_TILES(TILE)
#undef TILE
#define TILE(...) add("weight_gradients", false, fma, #__VA_ARGS__);
  MILLRACE_FMA_GRADIENT_TILES(TILE)
#undef TILE
#define TILE(...) add("weight_gradients", false, tensor, #__VA_ARGS__);
  MILLRACE_TENSOR_GRADIENT_TILES(TILE)
#undef TILE
  return names;
}

/// Each kernel for a generation that LibTorch's wheel knows from sm_80 on, or in a long run for all
/// of them; no GPU is needed.
TEST(GpuKernels, CompileWithoutSpillsForEveryGeneration) {
  const std::vector<std::string> names = every_kernel();
  const std::vector<int> generations = {90, 80, 86, 87, 89, 100, 120};
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < names.size();) {
      for (std::size_t g = 0; g < generations.size(); ++g) {
        if (!is_long() && g != i % generations.size()) continue;
        const gpu::Compiled made = gpu::compile(names[i], generations[g], true);
        EXPECT_FALSE(std::regex_search(made.log, std::regex("[1-9][0-9]* bytes spill")))
            << names[i] << " for sm_" << generations[g] << ": " << made.log;
      }
    }
  };
  std::thread other(work);
  work();
  other.join();
}

Tensors on_gpu(const Operators& of) {
  const Made made = by_program(of, kGpu);
  EXPECT_EQ(left_to_libtorch(made.operations), std::set<std::string>());
  return made.results;
}

class GpuNodes : public testing::TestWithParam<Family> {};

TEST_P(GpuNodes, EqualDoubleOnAnyShape) {
  if (!GetParam().on_gpu) GTEST_SKIP() << "LibTorch does it on a GPU";
  for (int i = 0; i < (is_long() ? 2000 : 100) && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    Random random{std::uint64_t(i)};
    const Operators any = GetParam().any(random);
    expect_near(on_gpu(any), in_double(any));
  }
}

INSTANTIATE_TEST_SUITE_P(, GpuNodes, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param.name; });

TEST(GpuFunctions, KeepNaNAndInfinitiesAsOnACore) {
  const Tensor x = at::tensor({-200.f, -3.f, -1e-9f, -0.f, 0.f, 2.f, 3.f, 90.f, NAN});
  const float inf = INFINITY;
  const Tensor rows =
      at::tensor({1.f, -inf, 2.f, NAN, 1.f, 2.f, -inf, -inf, -inf, 0.f, 0.f, 50.f}).view({4, 3});
  const Operators softmaxes = {
      [](const Tensors& t) {
        return Tensors{at::_softmax(t[0], -1, false), at::_log_softmax(t[0], -1, false)};
      },
      {rows}};
  for (const Operators& all :
       {functions_of(x, at::ones_like(x)), gradients_of(x, at::ones_like(x)), softmaxes}) {
    const Tensors got = on_gpu(all), wanted = by_program(all, at::kCPU).results;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(at::allclose(got[i], wanted[i], 1e-5, 1e-6, true)) << i << got[i] << wanted[i];
  }
}

/// What a mean far from zero leaves of a variance.
TEST(GpuFunctions, GroupNormFarFromZero) {
  Random random(1);
  for (const std::int64_t side : {8, 120}) {
    const Operators norm = {[=](const Tensors& t) {
                              return Tensors{std::get<0>(
                                  at::native_group_norm(t[0], {}, {}, 1, 2, side * side, 2, 1e-5))};
                            },
                            {random.numbers({1, 2, side, side}) + 300}};
    expect_near(on_gpu(norm), in_double(norm), 3e-5);  // the float mean's own rounding
  }
}

TEST(GpuFunctions, EachByteIsTheNearestFloat) {
  const Tensor bytes = at::arange(67 * 101 * 3).to(at::kByte).view({67, 101, 3});
  const Tensor there = bytes.to(kGpu), sample = at::zeros({1, 3, 67, 101}, kGpu);
  Tensor expected;
  stages::sample_of_bytes(bytes, expected);
  Arena arena(kGpu);
  Program program(
      [&] {
        Tensor made = sample;
        stages::sample_of_bytes(there, made);
      },
      arena);
  sample.zero_();
  program.run();
  EXPECT_TRUE(at::equal(sample.cpu(), expected));
  EXPECT_EQ(left_to_libtorch(program.operations()), std::set<std::string>());
}

TEST(GpuFunctions, BytesGoToTheDeviceAndBack) {
  const auto copy = c10::Dispatcher::singleton()
                        .findSchemaOrThrow("millrace::copy_bytes", "")
                        .typed<void(const Tensor&, const Tensor&)>();
  for (const std::int64_t count : {1, 4, 8, 20, 16 * 5000}) {
    const Tensor from = capture::pinned_zeros({count}, at::kByte),
                 back = capture::pinned_zeros({count}, at::kByte);
    const Tensor there = at::zeros({count}, at::TensorOptions(kGpu).dtype(at::kByte));
    Arena arena(kGpu);
    Program program([&] { copy.call(there, from), copy.call(back, there); }, arena);
    at::Tensor(from).random_(1, 255);
    program.run();
    there.cpu();  // waits
    EXPECT_TRUE(at::equal(back, from)) << count;
    EXPECT_EQ(left_to_libtorch(program.operations()), std::set<std::string>());
  }
}

TEST(GpuFunctions, UpdateAsInDouble) {
  expect_updates_as_in_double(kGpu);
}

TEST(GpuFunctions, NetsLearnAsOnACore) {
  for (const LayeredNet& net : layered_nets())
    EXPECT_EQ(learn_as_eagerly(net.layers, kGpu), net.left) << net.name;
}

}  // namespace
}  // namespace millrace::program
