#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stages/layer.h"
#include "stages/model_spec.h"

namespace millrace::stages {

/// The sample as a module number.
constexpr int kSample = -1;
/// No second input.
constexpr int kNone = -2;

/// A network before it is cut: modules 0, 1, ... as in a torch.nn.Sequential, some of which have an
/// earlier output as second input. Immutable, hence reentrant; shared by its stages.
class Network {
 public:
  /// `from`: each module's second input, or kNone. `shapes`: of the sample, then of each output.
  Network(std::vector<std::unique_ptr<Layer>> modules, std::vector<int> from,
          std::vector<ImageShape> shapes, bool channels_last)
      : modules_(std::move(modules)),
        from_(std::move(from)),
        shapes_(std::move(shapes)),
        channels_last_(channels_last) {}

  /// Adds the sample's latest frame to the output, of the same `channels`. Call it before sharing.
  void predict_change(std::int64_t channels);

  bool predicts_change() const { return predicts_change_; }

  /// Fixes the parameters whose names match one of `patterns` (with *). Throws
  /// std::invalid_argument for a pattern without a match. Call it before sharing.
  void freeze(const std::vector<std::string>& patterns);

  int size() const { return int(modules_.size()); }
  /// Whether samples enter in channels-last layout, which activations then have, too. It changes
  /// kernels, and so rounding, but not the meaning.
  bool channels_last() const { return channels_last_; }
  const Layer& module(int index) const { return *modules_[index]; }
  /// Shape of the output of module `index`, or of the sample (kSample); sizes are 0 if unknown.
  const ImageShape& shape(int index) const { return shapes_[index - kSample]; }
  const ImageShape& output() const { return shapes_.back(); }
  /// The second input of module `index`: an earlier module, kSample, or mostly kNone.
  int from(int index) const { return from_[index]; }

  /// The modules whose outputs cross a cut before module `place`, ascending, so the previous one is
  /// last; several with skip connections. {kSample} before module 0.
  std::vector<int> crossing(int place) const;

  /// Parameters of modules [begin, end), named as in the whole network's state_dict ("2.weight"; a
  /// file's parts as in their module), independent of the cut.
  std::vector<ParameterSpec> parameters(int begin, int end) const;
  /// Whether any parameter of modules [0, end) gets a gradient.
  bool learns_before(int end) const;

  std::vector<std::string> remarks;

 private:
  std::vector<std::unique_ptr<Layer>> modules_;
  std::vector<int> from_;
  std::vector<ImageShape> shapes_;
  bool channels_last_, predicts_change_ = false;
  std::vector<std::string> frozen_;
};

/// Builds the network `spec` for frames of shape `frame`, forecast.context to a sample. `gives`:
/// the required output. Throws std::invalid_argument with the wrong key of [model], or if the
/// output's shape does not match.
std::shared_ptr<const Network> build_network(const ModelSpec& spec, const ImageShape& frame,
                                             Gives gives = Gives::picture, Forecast forecast = {});

/// Whether the last module is a matrix times its flattened input, with or without a bias.
bool ends_in_linear(const Network& network);

/// Whether the network `spec` ends in a sigmoid, so it outputs pictures, not changes. Throws
/// std::invalid_argument for an unreadable file.
bool ends_in_sigmoid(const ModelSpec& spec);

}  // namespace millrace::stages
