// Tensors in 8 bits, on cores: {values} -> {bytes, ranges}, and back.
#include <ATen/ATen.h>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

/// The lines of `values`, an image or flat, without addresses.
kernels::QuantizedArguments lines_of(const at::Tensor& values) {
  if (!is_picture(values)) return {.width = int(values.numel())};
  const kernels::Layout layout = layout_of(values);
  return {.lines = layout.height, .width = int(layout.row())};
}

std::uint8_t* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::uint8_t*>(tensor.data_ptr());
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
  const kernels::QuantizedArguments lines = lines_of(values);
  const auto bind = [=](const Node& n, char*) {
    kernels::QuantizedArguments q = lines;
    q.values = floats(n.reads[0]);
    q.bytes = bytes_of(n.writes[0]);
    q.ranges = floats(n.writes[1]);
    return q;
  };
  return lower.add({.name = "quantize", .on_cores = by_team(bind, kernels::quantize)}, {values},
                   {bytes, ranges});
}

// dequantize(bytes, ranges)
bool dequantize(Lowering& lower, const Call& call) {
  const at::Tensor &bytes = tensor(call, 0), &ranges = tensor(call, 1), &made = result(call);
  if (!lies_as_image(bytes) || made.numel() == 0 || !are_plain(ranges)) return false;
  const kernels::QuantizedArguments lines = lines_of(made);
  const auto bind = [=](const Node& n, char*) {
    kernels::QuantizedArguments q = lines;
    q.bytes = bytes_of(n.reads[0]);
    q.ranges = floats(n.reads[1]);
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
