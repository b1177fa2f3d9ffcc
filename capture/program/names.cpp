// What nodes are called in reports.
#include <ATen/core/Tensor.h>

#include "capture/program/operations.h"
#include "stages/correction.h"
#include "stages/guarded_update.h"
#include "stages/optimizer.h"

namespace millrace::program {
namespace {

std::string of_norm(const Node& node, std::size_t source) {
  const std::string kind = node.norm.frozen                         ? "batch norm "
                           : node.norm.groups == node.norm.channels ? "instance norm "
                                                                    : "group norm ";
  return kind + text_of(layout_of(node.reads[source]));
}

std::string of_pool(const kernels::Pool& p) {
  const char* const kind = p.largest ? "max pool " : p.divisor == 1 ? "sum pool " : "average pool ";
  return kind + text_of(p.input) + " -> " + text_of(p.output);
}

std::string of_update(const Node& node) {
  const stages::UpdateNumbers numbers = stages::numbers_in(node.call->arguments[5].toStringRef());
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

std::string name_of(const Node& node) {
  const char* const softmax = node.logarithm ? "log softmax" : "softmax";
  switch (node.kind) {
    case Kind::torch:
      return node.call->name();
    case Kind::convolution:
    case Kind::data_gradient:
    case Kind::weight_gradient:
      return describe(node.convolution);
    case Kind::map:
      return kernels::name_of(node.map.function);
    case Kind::mse:
      return "mean squared error";
    case Kind::mse_gradient:
      return "mean squared error's gradient";
    case Kind::group_norm:
    case Kind::frozen_norm:
      return of_norm(node, 0);
    case Kind::group_norm_gradient:
    case Kind::frozen_norm_gradient:
      return of_norm(node, 1) + " gradient";
    case Kind::copy:
      return "copy";
    case Kind::update:
      return of_update(node);
    case Kind::add_up:
      return "sum over ranks " + text_of(layout_of(node.writes[0]));
    case Kind::layer_norm:
      return "layer norm";
    case Kind::layer_norm_gradient:
      return "layer norm gradient";
    case Kind::softmax:
      return softmax;
    case Kind::softmax_gradient:
      return softmax + std::string(" gradient");
    case Kind::pool:
      return of_pool(node.pool);
    case Kind::pool_gradient:
      return of_pool(node.pool) + " gradient";
    case Kind::zero:
      return "zero";
    case Kind::channel_sums:
      return "channel sums of " + text_of(layout_of(node.reads[0]));
    case Kind::sample_of_bytes:
      return "sample of bytes";
  }
  return "";
}

}  // namespace millrace::program
