#include "tools/bench/known_networks.h"

#include <algorithm>

namespace millrace::bench {

using namespace engine::plan;

namespace {

constexpr double kFloat = 4;

/// What Winograd's F(2x2, 3x3) saves a 3x3 convolution of stride 1 (Lavin and Gray, arXiv
/// 1509.09308), and others do without.
constexpr double kWinograd = 2.25;

/// Adds layers to a profile, each with what it multiplies and moves.
class Builder {
 public:
  Builder(const std::string& network, int batch, const Accelerator& accelerator)
      : batch_(batch), accelerator_(accelerator) {
    profile_.network = network;
    profile_.source = "worked out from the architecture (roofline)";
    profile_.device = "V100";
    profile_.frames = batch;
  }

  struct Layer {
    std::string name;
    double flops = 0;    ///< of one sample's forward
    double inputs = 0;   ///< numbers of one sample that it reads
    double outputs = 0;  ///< and writes
    double weights = 0;
    double passes = 1;    ///< over its output: normalising, activations
    double crossing = 0;  ///< numbers alive behind it besides its output
    double stash = -1;    ///< numbers kept for the backward; -1: its output
  };

  void add(const Layer& layer) {
    ModuleProfile module;
    module.name = layer.name;
    const double moved =
        kFloat * (batch_ * (layer.inputs + layer.passes * layer.outputs) + layer.weights);
    const double once = ms(batch_ * layer.flops, moved);
    module.forward.median = once;
    // A backward multiplies as often again for the input's gradient as for the weights'.
    if (!profile_.modules.empty()) module.input_gradient.median = once;
    if (layer.weights > 0 || profile_.modules.empty()) module.weight_gradient.median = once;
    module.update.median = layer.weights > 0 ? ms(0, 3 * kFloat * layer.weights) : 0.0;
    module.bytes.weight = kFloat * layer.weights;
    module.bytes.activation = kFloat * batch_ * (layer.outputs + layer.crossing);
    module.bytes.gradient = module.bytes.activation;
    module.bytes.stash = kFloat * batch_ * (layer.stash < 0 ? layer.outputs : layer.stash);
    profile_.modules.push_back(module);
  }

  /// A convolution that keeps its input's side, or divides it by `stride`.
  void conv(const std::string& name, int in, int out, int kernel, int side, int stride = 1,
            double passes = 2) {
    const double cells = double(side / stride) * (side / stride);
    cli::add({.name = name,
         .flops = 2.0 * kernel * kernel * in * out * cells *
                  (kernel == 3 && stride == 1 ? 1.0 : kWinograd),
         .inputs = double(in) * side * side,
         .outputs = out * cells,
         .weights = double(kernel) * kernel * in * out + out,
         .passes = passes});
  }

  void pool(int channels, int side) {
    const double cells = double(side / 2) * (side / 2);
    cli::add({.name = "pool", .inputs = 4 * channels * cells, .outputs = channels * cells});
  }

  void linear(const std::string& name, int in, int out) {
    cli::add({.name = name,
         .flops = 2.0 * in * out,
         .inputs = double(in),
         .outputs = double(out),
         .weights = double(in) * out + out,
         .passes = 2});
  }

  void input(double numbers) { profile_.input_bytes = kFloat * batch_ * numbers; }
  Profile take() { return std::move(profile_); }

 private:
  double ms(double flops, double bytes) const {
    return std::max({flops / accelerator_.flops_per_ms, bytes / accelerator_.bytes_per_ms,
                     accelerator_.launch_ms});
  }

  int batch_;
  Accelerator accelerator_;
  Profile profile_;
};

/// 1x1, 3x3, 1x1 with four times the channels out, and a 1x1 beside them where the shape changes.
Builder::Layer bottleneck(const std::string& name, int in, int width, int side, int stride) {
  const double before = double(side) * side, cells = before / stride / stride;
  const int out = 4 * width;
  const bool projects = in != out || stride > 1;
  Builder::Layer block{.name = name, .inputs = in * before, .outputs = out * cells};
  block.weights = double(in) * width + 9.0 * width * width + double(width) * out +
                  (projects ? (in + 2.0) * out : 0.0) + 4.0 * width + 2.0 * out;
  block.flops = 2 * (stride > 1 ? kWinograd : 1.0) * 9.0 * width * width * cells +
                2 * kWinograd *
                    (double(in) * width * before + double(width) * out * cells +
                     (projects ? double(in) * out * cells : 0.0));
  // Each convolution writes, is normalised (two passes) and rectified: four passes and a sum.
  const double inner = width * before + width * cells;
  block.passes = 5 + 4 * inner / block.outputs;
  block.stash = 2 * (inner + block.outputs);
  return block;
}

}  // namespace

Accelerator v100() {
  return {17.7e9, 700e6, 0.01};
}

Profile vgg16(int batch, const Accelerator& accelerator) {
  Builder builder("VGG-16", batch, accelerator);
  builder.input(3 * 224 * 224);
  int in = 3, side = 224, count = 0;
  for (const auto& [out, convolutions] : {std::pair(64, 2), std::pair(128, 2), std::pair(256, 3),
                                          std::pair(512, 3), std::pair(512, 3)}) {
    for (int i = 0; i < convolutions; ++i, in = out) {
      builder.conv("conv" + std::to_string(count++), in, out, 3, side);
    }
    builder.pool(out, side);
    side /= 2;
  }
  builder.linear("fc0", 512 * 7 * 7, 4096);
  builder.linear("fc1", 4096, 4096);
  builder.linear("fc2", 4096, 1000);
  return builder.take();
}

Profile resnet50(int batch, const Accelerator& accelerator) {
  Builder builder("ResNet-50", batch, accelerator);
  builder.input(3 * 224 * 224);
  builder.conv("stem", 3, 64, 7, 224, 2, 4);
  builder.pool(64, 112);
  int in = 64, side = 56, stride = 1;
  for (const auto& [width, blocks] :
       {std::pair(64, 3), std::pair(128, 4), std::pair(256, 6), std::pair(512, 3)}) {
    for (int i = 0; i < blocks; ++i) {
      const std::string name = "block" + std::to_string(width) + "." + std::to_string(i);
      builder.add(bottleneck(name, in, width, side, i == 0 ? stride : 1));
      if (i == 0) side /= stride;
      in = 4 * width;
    }
    stride = 2;
  }
  builder.linear("fc", 2048, 1000);
  return builder.take();
}

Profile gnmt8(int batch, const Accelerator& accelerator) {
  constexpr double kTokens = 24, kWidth = 1024, kWords = 32320;
  // A step at a time multiplies small matrices: LSTMs reach two thirds of the rate of one large
  // one.
  constexpr double kSmall = 1.5;
  Builder builder("GNMT-8", batch, accelerator);
  const auto lstm = [&](const std::string& name, double in, int directions, double crossing) {
    const double weights = directions * 4 * kWidth * (in + kWidth + 2);
    builder.add({.name = name,
                 .flops = kSmall * 2 * weights * kTokens,
                 .inputs = kTokens * in,
                 .outputs = kTokens * kWidth * directions,
                 .weights = weights,
                 .passes = 8,
                 .crossing = crossing,
                 .stash = 6 * directions * kTokens * kWidth});
  };
  const auto embedding = [&](const std::string& name, double crossing) {
    builder.add({.name = name,
                 .inputs = kTokens * kWidth,
                 .outputs = kTokens * kWidth,
                 .weights = kWords * kWidth,
                 .crossing = crossing});
  };
  const double sentence = kTokens * kWidth;
  embedding("encoder words", 0);
  lstm("encoder both ways", kWidth, 2, 0);
  lstm("encoder 1", 2 * kWidth, 1, 0);
  lstm("encoder 2", kWidth, 1, sentence);  // read again by the sum behind the next
  lstm("encoder 3", kWidth, 1, 0);
  embedding("decoder words", sentence);  // what the encoder made goes on to the attention
  lstm("decoder 0, attention", 2 * kWidth, 1, sentence);
  for (int i = 1; i < 4; ++i) {
    lstm("decoder " + std::to_string(i), 2 * kWidth, 1, i < 3 ? 2 * sentence : 0);
  }
  builder.add({.name = "words",
               .flops = 2 * kWidth * kWords * kTokens,
               .inputs = sentence,
               .outputs = kWords * kTokens,
               .weights = kWidth * kWords + kWords});
  return builder.take();
}

Profile partime_cnn(int layers, int features, int kernel, int side,
                    const Accelerator& accelerator) {
  Builder builder("partime-cnn", 1, accelerator);
  builder.input(3.0 * side * side);
  for (int i = 0; i < layers; ++i) {
    builder.conv("conv" + std::to_string(i), i == 0 ? 3 : features, i + 1 == layers ? 3 : features,
                 kernel, side);
  }
  return builder.take();
}

}  // namespace millrace::bench
