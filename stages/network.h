// A network as a list of modules, before it is cut.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stages/layer.h"
#include "stages/model_spec.h"

namespace millrace::stages {

/// Stands for the sample where a module's number is asked for.
constexpr int kSample = -1;
/// No second input.
constexpr int kNone = -2;

/// Modules 0, 1, ... as in a torch.nn.Sequential, some of which join in what an earlier one gave.
/// Immutable, hence reentrant; shared by the stages cut from it.
class Network {
 public:
  /// `from`: a module's second input, by module, or kNone. `shapes`: of the sample, then of what
  /// each module gives.
  Network(std::vector<std::unique_ptr<Layer>> modules, std::vector<int> from,
          std::vector<ImageShape> shapes, bool channels_last)
      : modules_(std::move(modules)),
        from_(std::move(from)),
        shapes_(std::move(shapes)),
        channels_last_(channels_last) {}

  /// Adds the sample's latest frame, of `channels`, to the output, which has its shape. Before it
  /// is shared.
  void predict_change(std::int64_t channels);

  bool predicts_change() const { return predicts_change_; }

  /// Fixes the parameters whose names match one of `patterns`, where * stands for anything. Throws
  /// std::invalid_argument for a pattern that matches none. Before it is shared.
  void freeze(const std::vector<std::string>& patterns);

  int size() const { return int(modules_.size()); }
  /// Whether samples enter in channels-last layout, which activations then keep. Values mean the
  /// same; kernels differ, and with them the rounding.
  bool channels_last() const { return channels_last_; }
  const Layer& module(int index) const { return *modules_[index]; }
  /// Of what module `index` gives, or the sample (kSample); sizes are 0 where the sample's are not
  /// known.
  const ImageShape& shape(int index) const { return shapes_[index - kSample]; }
  /// The earlier module (or kSample) whose output `index` joins in; kNone for most.
  int from(int index) const { return from_[index]; }

  /// The modules whose outputs a cut before module `place` crosses, ascending and so the one just
  /// before it last: with skip connections there are several. {kSample} before module 0.
  std::vector<int> crossing(int place) const;

  /// Parameters of modules [begin, end), named as the whole network's state_dict names them
  /// ("2.weight"; a file's parts as the module they are of), whatever the cut.
  std::vector<ParameterSpec> parameters(int begin, int end) const;
  /// Whether any parameter of modules [0, end) takes a gradient.
  bool learns_before(int end) const;

  /// What people should know of it, a line each.
  std::vector<std::string> remarks;

 private:
  std::vector<std::unique_ptr<Layer>> modules_;
  std::vector<int> from_;
  std::vector<ImageShape> shapes_;
  bool channels_last_, predicts_change_ = false;
  std::vector<std::string> frozen_;  ///< names
};

/// Builds the network `spec` describes for frames of shape `frame`, as many to a sample as
/// `forecast` says.
/// `gives`: what its output is compared with.
/// Throws std::invalid_argument naming the key of [model] that is wrong, or saying that the output
/// has not the shape of what it is compared with.
std::shared_ptr<const Network> build_network(const ModelSpec& spec, const ImageShape& frame,
                                             Gives gives = Gives::picture, Forecast forecast = {});

// A network from PyTorch: what tools/bindings/python/millrace/export.py writes.

/// Reads a TorchScript archive whose parts are functions of inputs and parameters, a module each:
/// part i is the child "part_i", with its name, inputs and parameters in the extra file
/// "millrace.json" and their values in the attributes "w0", "w1", ... TorchScript is code, so
/// read no file that you would not run. The shapes that parts give are found by running them once
/// on a sample of zeros, unless `input` has no size. Throws std::invalid_argument, "model.file:
/// ...".
std::shared_ptr<Network> read_network(const std::string& file, const ImageShape& input,
                                      bool channels_last);

/// Whether its last part ends in a sigmoid. Throws as read_network().
bool file_ends_in_sigmoid(const std::string& file);

/// Whether the network `spec` describes ends in a sigmoid, so that it gives pictures, not changes.
/// Throws std::invalid_argument for a file that can't be read.
bool ends_in_sigmoid(const ModelSpec& spec);

}  // namespace millrace::stages
