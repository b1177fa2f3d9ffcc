// Names of nodes in reports.
#include <ATen/core/Tensor.h>

#include "capture/program/operations.h"
#include "stages/correction.h"
#include "stages/optimizer.h"

namespace millrace::program {
namespace {

std::string of_norm(const Node& node) {
  const std::string kind = node.norm.frozen                         ? "batch norm "
                           : node.norm.groups == node.norm.channels ? "instance norm "
                                                                    : "group norm ";
  return kind + text_of(layout_of(node.reads[node.gradient ? 1 : 0]));
}

std::string of_pool(const kernels::Pool& p) {
  const char* const kind = p.largest ? "max pool " : p.divisor == 1 ? "sum pool " : "average pool ";
  return kind + text_of(p.input) + " -> " + text_of(p.output);
}

std::string of_update(const Node& node) {
  const stages::UpdateNumbers numbers = numbers_of_update(node);
  std::string name = "update by " + stages::optimizer_names()[std::size_t(numbers.optimizer)];
  const stages::CorrectionRule rule = numbers.correction.rule;
  if (rule != stages::CorrectionRule::none) name += ", " + stages::correction_kind(rule).name;
  return name;
}

}  // namespace

std::string text_of(const kernels::Layout& layout) {
  return std::to_string(layout.channels) + "x" + std::to_string(layout.height) + "x" +
         std::to_string(layout.width);
}

std::string describe(const kernels::Convolution& c) {
  static constexpr const char* passes[] = {"forward ", "data-gradient ", "weight-gradient ",
                                           "gradients "};
  static constexpr const char* activations[] = {"", " relu", " sigmoid"};
  const auto [rows, columns] = kernels::window_of(c);
  const auto sides = [](int of_rows, int of_columns) {
    return std::to_string(of_rows) +
           (of_rows == of_columns ? "" : "x" + std::to_string(of_columns));
  };
  std::string text = passes[int(c.pass)] + text_of(c.input) + " -> " + text_of(c.output) + " k" +
                     sides(rows.count, columns.count) + " s" + sides(rows.stride, columns.stride);
  if (c.window)
    text +=
        " p" + sides(rows.padding, columns.padding) + " d" + sides(rows.dilation, columns.dilation);
  if (c.groups > 1) text += " of " + std::to_string(c.groups) + " groups";
  return text + activations[int(c.activation)] + (c.masked ? " masked" : "");
}

std::string name_of(const Node& node) {
  const std::string gradient = node.gradient ? " gradient" : "";
  switch (node.kind) {
    case Kind::torch:
      return node.call->name();
    case Kind::convolution:
      return describe(node.convolution);
    case Kind::map:
      return kernels::name_of(node.map.function);
    case Kind::mse:
      return node.gradient ? "mean squared error's gradient" : "mean squared error";
    case Kind::group_norm:
      return of_norm(node) + gradient;
    case Kind::copy:
      return "copy";
    case Kind::update:
      return of_update(node);
    case Kind::add_up:
      return "sum over ranks " + text_of(layout_of(node.writes[0]));
    case Kind::layer_norm:
      return "layer norm" + gradient;
    case Kind::softmax:
      return (node.logarithm ? "log softmax" : "softmax") + gradient;
    case Kind::pool:
      return of_pool(node.pool) + gradient;
    case Kind::zero:
      return "zero";
    case Kind::channel_sums:
      return "channel sums of " + text_of(layout_of(node.reads[0]));
    case Kind::sample_of_bytes:
      return "sample of bytes";
    case Kind::transfer:
      return node.reads[0].is_cpu() ? "copy from host" : "copy to host";
  }
  return "";
}

}  // namespace millrace::program
