// Tensors in 8 bits, on cores: {values} -> {bytes, ranges}, and back.
#include <ATen/ATen.h>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

/// The lines of `values`, an image or flat, as bytes; without the address of its floats.
kernels::QuantizedArguments lines_of(const at::Tensor& values, const at::Tensor& bytes,
                                     const at::Tensor& ranges) {
  const int lines = is_picture(values) ? int(values.size(2)) : 1;
  return {.bytes = static_cast<std::uint8_t*>(bytes.data_ptr()),
          .ranges = floats(ranges),
          .lines = lines,
          .width = int(values.numel()) / lines};
}

/// Whether its bytes are in the order of the kernels' floats.
bool lies_as_image(const at::Tensor& bytes) {
  return bytes.dim() == 4 ? bytes.size(0) == 1 && bytes.is_contiguous(image_format(bytes.device()))
                          : bytes.is_contiguous();
}

// quantize(values)
bool quantize(Lowering& lower, const Call& call) {
  const at::Tensor &given = tensor(call, 0), &bytes = result(call), &ranges = result(call, 1);
  if (!lies_as_image(bytes) || given.numel() == 0) return false;
  if (given.dim() == 4 ? !is_picture(given) : !are_plain(given)) return false;
  const at::Tensor values = is_picture(given) ? lower.read(given) : given;
  const auto bind = [](const Node& n, char*) {
    kernels::QuantizedArguments q = lines_of(n.reads[0], n.writes[0], n.writes[1]);
    q.values = floats(n.reads[0]);
    return q;
  };
  return lower.add({.name = "quantize", .on_cores = by_team(bind, kernels::quantize)}, {values},
                   {bytes, ranges});
}

// dequantize(bytes, ranges)
bool dequantize(Lowering& lower, const Call& call) {
  const at::Tensor &bytes = tensor(call, 0), &ranges = tensor(call, 1), &made = result(call);
  if (!lies_as_image(bytes) || made.numel() == 0 || !are_plain(ranges)) return false;
  const auto bind = [](const Node& n, char*) {
    kernels::QuantizedArguments q = lines_of(n.writes[0], n.reads[0], n.reads[1]);
    q.made = floats(n.writes[0]);
    return q;
  };
  Operation operation{.name = "dequantize", .on_cores = by_team(bind, kernels::dequantize)};
  if (is_picture(made)) return lower.add_image(made, std::move(operation), {bytes, ranges});
  return lower.add(std::move(operation), {bytes, ranges}, {made});
}

}  // namespace

const Rules quantize_rules = {
    {"millrace::quantize", {quantize, /*on_gpu=*/false}},
    {"millrace::dequantize", {dequantize, /*on_gpu=*/false}},
};

}  // namespace millrace::program
