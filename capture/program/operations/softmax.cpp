// Softmax and its logarithm over a tensor's last dimension: {x} -> {y}; gradient: {dy, y} -> {dx}.
#include <ATen/ATen.h>

#include <algorithm>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

// _softmax(x, dim, half_to_float), _log_softmax alike, and
// _softmax_backward_data(gradient, made, dim, dtype)
bool softmax(Lowering& lower, const Call& call) {
  const bool gradient = call.name().ends_with("_backward_data");
  const std::size_t operands = gradient ? 2 : 1;
  const at::Tensor& made = result(call);
  const std::int64_t side = call.arguments[operands].toInt();
  std::vector<at::Tensor> reads;
  for (std::size_t i = 0; i < operands; ++i) reads.push_back(tensor(call, i));
  if (!are_plain(made) || made.dim() == 0 || made.numel() == 0 ||
      (side != made.dim() - 1 && side != -1) ||
      !std::all_of(reads.begin(), reads.end(), is_copyable))
    return false;
  for (at::Tensor& each : reads) each = lower.contiguous(each);
  const bool log = call.name().starts_with("aten::_log");
  const int row = int(made.size(-1)), rows = int(made.numel()) / row;
  const auto bind = [=](const Node& n, char*) {
    return kernels::RowArguments{.a = floats(n.reads[0]),
                                 .b = gradient ? floats(n.reads[1]) : nullptr,
                                 .to = floats(n.writes[0]),
                                 .rows = rows,
                                 .row = row,
                                 .logarithm = log};
  };
  const int threads = row <= 256 ? 64 : 512;
  const std::string kernel = gradient ? "softmax_gradient<" : "softmax<";
  return lower.add(
      {.name = std::string(log ? "log softmax" : "softmax") + (gradient ? " gradient" : ""),
       .on_cores = by_team(bind, kernels::softmax),
       .on_gpu = gpu_call(
           {{kernel + numbers(threads) + ">", threads, rows, std::size_t(2 * threads)}}, bind)},
      std::move(reads), {made});
}

}  // namespace

const Rules softmax_rules = {
    {"aten::_softmax", {softmax}},
    {"aten::_log_softmax", {softmax}},
    {"aten::_softmax_backward_data", {softmax}},
    {"aten::_log_softmax_backward_data", {softmax}},
};

}  // namespace millrace::program
