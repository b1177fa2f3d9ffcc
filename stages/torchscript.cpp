#include "stages/torchscript.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <sstream>

namespace millrace::stages {
namespace {

/// Registers `value` as "layer1.0.weight": each word before a dot is a module.
void add_parameter(torch::jit::Module owner, const std::string& name, const at::Tensor& value) {
  std::size_t begin = 0;
  for (std::size_t dot; (dot = name.find('.', begin)) != std::string::npos; begin = dot + 1) {
    const std::string word = name.substr(begin, dot - begin);
    if (!owner.hasattr(word)) owner.register_module(word, torch::jit::Module("Part"));
    owner = owner.attr(word).toModule();
  }
  owner.register_parameter(name.substr(begin), value, /*is_buffer=*/false);
}

at::Tensor forward(const Network& network, const at::Tensor& sample, const Parameters& parameters) {
  std::vector<at::Tensor> made;
  std::size_t used = 0;
  const auto output = [&](int module) {
    return module == kSample ? sample : made[std::size_t(module)];
  };
  for (int i = 0; i < network.size(); ++i) {
    std::vector<at::Tensor> inputs = {output(i - 1)};
    if (network.from(i) != kNone) inputs.push_back(output(network.from(i)));
    const std::size_t count = network.module(i).parameters().size();
    made.push_back(network.module(i).forward(
        inputs, std::span(parameters.views()).subspan(std::exchange(used, used + count), count)));
  }
  return made.back();
}

}  // namespace

std::string to_torchscript(const Network& network, const StateDict& state) {
  const at::NoGradGuard no_grad;
  Parameters parameters(network.parameters(0, network.size()), at::kCPU);
  load_state(parameters, state);
  torch::jit::Module module("Network");
  for (std::size_t i = 0; i < parameters.specs().size(); ++i)
    add_parameter(module, parameters.specs()[i].name, parameters.views()[i]);
  const ImageShape& shape = network.shape(kSample);
  const auto traced = torch::jit::tracer::trace(
      {at::zeros({1, shape.channels, shape.height, shape.width})},
      [&](torch::jit::Stack inputs) -> torch::jit::Stack {
        return {forward(network, inputs[0].toTensor(), parameters)};
      },
      [](const at::Tensor&) { return ""; }, /*strict=*/true, /*force_outplace=*/true, &module,
      {"frame"});
  module.type()->addMethod(module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), "forward"), traced.first->graph));
  std::ostringstream bytes;
  module.save(bytes);
  return bytes.str();
}

std::string last_line(std::string text) {
  text.erase(text.find_last_not_of("\n ") + 1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace millrace::stages
