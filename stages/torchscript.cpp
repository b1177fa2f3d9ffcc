#include "stages/torchscript.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "stages/layers.h"

namespace millrace::stages {
namespace {

using nlohmann::json;

constexpr const char* kAbout = "millrace.json";
constexpr int kFormat = 1;

/// Parts take [1,K] or [1,T,D], as in PyTorch; modules exchange pictures, [1,K,1,1] or [1,T,D,1].
at::Tensor as_picture(const at::Tensor& tensor) {
  at::Tensor picture = tensor;
  while (picture.dim() < 4) picture = picture.unsqueeze(picture.dim());
  return picture;
}

at::Tensor with_dimensions(const at::Tensor& picture, std::int64_t dimensions) {
  at::Tensor tensor = picture;
  while (tensor.dim() > dimensions) tensor = tensor.squeeze(tensor.dim() - 1);
  return tensor;
}

void replace(torch::jit::Node* node, c10::Symbol kind, at::ArrayRef<torch::jit::Value*> inputs) {
  torch::jit::Node* const made = node->owningGraph()->create(kind, inputs);
  made->insertBefore(node);
  made->output()->copyMetadata(node->output());
  node->output()->replaceAllUsesWith(made->output());
  node->destroy();
}

/// Sets an argument, if the operator has it.
void set_argument(torch::jit::Node* node, const c10::FunctionSchema& schema,
                  const std::string& name, const c10::IValue& value) {
  const std::optional<int> index = schema.argumentIndexWithName(name);
  if (!index) return;
  const torch::jit::WithInsertPoint before(node);
  node->replaceInput(std::size_t(*index), node->owningGraph()->insertConstant(value));
}

/// Undoes what tracing has fixed: view becomes reshape, which also works where a step program has
/// pictures channels-last; convolutions obey this process's settings for cuDNN; and recurrent
/// layers train, as cuDNN has no gradients of them in evaluation. None has dropout.
void let_run_anywhere(torch::jit::Block& block) {
  for (auto at = block.nodes().begin(); at != block.nodes().end();) {
    torch::jit::Node* const node = *at++;
    for (torch::jit::Block* const inner : node->blocks()) let_run_anywhere(*inner);
    const c10::FunctionSchema* const schema = node->maybeSchema();
    if (!schema) continue;
    const std::string& name = schema->name();
    if (name == "aten::view" && schema->overload_name().empty()) {  // to another shape, not type
      replace(node, c10::aten::reshape, node->inputs());
    } else if (name == "aten::_convolution") {
      constexpr std::size_t kOfConvolution = 9;
      replace(node, c10::aten::convolution, node->inputs().slice(0, kOfConvolution));
    } else if (name == "aten::gru" || name == "aten::lstm" || name.starts_with("aten::rnn_")) {
      set_argument(node, *schema, "dropout", 0.0);
      set_argument(node, *schema, "train", true);
    }
  }
}

std::shared_ptr<torch::jit::Graph> graph_of(const torch::jit::Module& module) {
  const auto graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  let_run_anywhere(*graph->block());
  return graph;
}

/// A part, run operator by operator without fusion, for PyTorch's own bits. `inputs`: the number of
/// dimensions of each.
std::unique_ptr<Layer> script_layer(const std::string& name, const torch::jit::Module& module,
                                    const std::vector<std::int64_t>& inputs,
                                    std::vector<ParameterSpec> parameters) {
  const auto forward = [self = c10::IValue(module._ivalue()),
                        code = torch::jit::Code(graph_of(module), name),
                        inputs](Values x, Values p) {
    torch::jit::Stack stack = {self};
    for (std::size_t i = 0; i < inputs.size(); ++i)
      stack.emplace_back(with_dimensions(x[i], inputs[i]));
    for (const at::Tensor& parameter : p) stack.emplace_back(parameter);
    torch::jit::InterpreterState(code).run(stack);
    return as_picture(stack.back().toTensor());
  };
  return layer_of(
      {.text = name, .parameters = std::move(parameters), .of = forward, .names_are_whole = true});
}

struct File {
  torch::jit::Module module;
  json about;
};

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

File open(const std::string& file) {
  if (!std::filesystem::is_regular_file(file)) throw std::invalid_argument("cannot be opened");
  torch::jit::ExtraFilesMap extra = {{kAbout, ""}};
  try {
    torch::jit::Module module = torch::jit::load(file, at::kCPU, extra);
    if (extra[kAbout].empty())
      throw std::invalid_argument("has no parts: write it by python -m millrace.export");
    json about = json::parse(extra[kAbout]);
    if (about.at("format") != kFormat)
      throw std::invalid_argument("has a format of another version");
    return {std::move(module), std::move(about)};
  } catch (const c10::Error& error) {
    throw std::invalid_argument("not a TorchScript file: " +
                                first_line(error.what_without_backtrace()));
  }
}

std::vector<ParameterSpec> parameters_of(const json& part, const torch::jit::Module& module) {
  std::vector<ParameterSpec> all;
  for (const json& one : part.at("parameters")) {
    const at::Tensor value =
        module.attr("w" + std::to_string(one.at("value").get<int>())).toTensor();
    all.push_back({.name = one.at("name"),
                   .shape = value.sizes().vec(),
                   .given = value.detach(),
                   .fixed = one.at("fixed"),
                   .also = one.value("also", std::vector<std::string>())});
  }
  return all;
}

/// The output for these inputs, the second of which may be undefined.
at::Tensor run_once(const Layer& layer, const at::Tensor& x, const at::Tensor& joined) {
  const at::Tensor inputs[] = {x, joined};
  std::vector<at::Tensor> weights;
  for (const ParameterSpec& spec : layer.parameters()) weights.push_back(spec.given);
  at::Tensor made = layer.forward(inputs, weights);
  if (made.dim() != 4 || made.size(0) != 1)
    throw std::invalid_argument("gives no picture of one sample");
  if (made.is_floating_point() && made.scalar_type() != at::kFloat)
    throw std::invalid_argument(std::string("gives ") + c10::toString(made.scalar_type()) +
                                ", not Float: end its forward with .float()");
  return made;
}

std::string text(const ImageShape& shape) {
  return std::to_string(shape.channels) + "x" + std::to_string(shape.height) + "x" +
         std::to_string(shape.width);
}

std::shared_ptr<Network> make(const File& file, const ImageShape& input, bool channels_last) {
  const c10::NoGradGuard no_grad;
  std::vector<std::unique_ptr<Layer>> modules;
  std::vector<int> from;
  std::vector<ImageShape> shapes = {input};
  std::vector<at::Tensor> made;  // of a ramp: zeros may have no inverse
  const bool sized = input.height && input.width;
  if (sized) made.push_back(at::linspace(0, 1, input.elements()).view(input.sizes()));
  const json size = file.about.value("size", json());
  if (!size.is_null() && input.height && size != json{input.height, input.width})
    throw std::invalid_argument(
        "holds for samples of " + text({input.channels, size.at(0), size.at(1)}) +
        " alone, since its forward counts with sizes: export it with " + "--sample " + text(input));
  const json& parts = file.about.at("parts");
  for (const json& part : parts) {
    const std::string name = part.at("name"), number = std::to_string(modules.size());
    auto layer = script_layer(name, file.module.attr("part_" + number).toModule(),
                              part.at("inputs").get<std::vector<std::int64_t>>(),
                              parameters_of(part, file.module));
    const int source = part.at("from");
    if (source >= int(modules.size()) || source < kNone)
      throw std::invalid_argument("part " + number + " takes what comes later");
    try {
      if (sized) {
        made.push_back(run_once(*layer, made.back(),
                                source == kNone ? at::Tensor() : made[std::size_t(source + 1)]));
      }
      shapes.push_back(
          sized ? ImageShape{made.back().size(1), made.back().size(2), made.back().size(3)}
                : ImageShape{part.at("channels"), 0, 0});
    } catch (const std::exception& error) {
      const auto* torch = dynamic_cast<const c10::Error*>(&error);
      throw std::invalid_argument(
          "part " + number + " (" + name + ") takes no samples of " + text(input) + ": " +
          last_line(torch ? torch->what_without_backtrace() : error.what()));
    }
    modules.push_back(std::move(layer));
    from.push_back(source);
    const auto read_later = [before = int(modules.size()) - 2](const json& later) {
      return later.at("from") == before;
    };
    const auto rest = parts.begin() + std::ptrdiff_t(modules.size());
    if (sized && std::none_of(rest, parts.end(), read_later)) made[modules.size() - 1].reset();
  }
  if (modules.empty()) throw std::invalid_argument("has no parts");
  auto network = std::make_shared<Network>(std::move(modules), std::move(from), std::move(shapes),
                                           channels_last);
  network->remarks = file.about.at("remarks").get<std::vector<std::string>>();
  return network;
}

template <class Use>
auto with_file(const std::string& file, const Use& use) {
  if (file.empty()) throw std::invalid_argument("model.file: preset \"file\" needs one");
  std::string fault;
  try {
    return use(open(file));
  } catch (const json::exception&) {
    fault = "what it says of its parts can't be read";
  } catch (const std::invalid_argument& error) {
    fault = error.what();
  } catch (const c10::Error& error) {
    fault = first_line(error.what_without_backtrace());
  }
  throw std::invalid_argument("model.file: " + file + ": " + fault);
}

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

std::shared_ptr<Network> read_network(const std::string& file, const ImageShape& input,
                                      bool channels_last) {
  return with_file(file, [&](const File& opened) { return make(opened, input, channels_last); });
}

bool file_ends_in_sigmoid(const std::string& file) {
  return with_file(file, [](const File& opened) {
    const std::size_t parts = opened.about.at("parts").size();
    if (parts == 0) throw std::invalid_argument("has no parts");
    const torch::jit::Module last =
        opened.module.attr("part_" + std::to_string(parts - 1)).toModule();
    return graph_of(last)->outputs().at(0)->node()->kind() == c10::aten::sigmoid;
  });
}

std::string to_torchscript(const Network& network, const StateDict& state) {
  const at::NoGradGuard no_grad;
  Parameters parameters(network.parameters(0, network.size()), at::kCPU);
  load_state(parameters, state);
  torch::jit::Module module("Network");
  for (std::size_t i = 0; i < parameters.specs().size(); ++i)
    add_parameter(module, parameters.specs()[i].name, parameters.views()[i]);
  const auto traced = torch::jit::tracer::trace(
      {at::zeros(network.shape(kSample).sizes())},
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

}  // namespace millrace::stages
