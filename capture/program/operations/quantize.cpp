// Tensors in 8 bits: {values} -> {bytes, ranges}, and back.
#include <ATen/ATen.h>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

/// Of `values` in the layout of kernels, with `ranges` as in stages::Quantized.
kernels::QuantizedArguments lines_of(const at::Tensor& values) {
  kernels::QuantizedArguments q;
  if (!is_picture(values)) {
    q.width = int(values.numel());
    return q;
  }
  const kernels::Layout layout = layout_of(values);
  q.lines = layout.height;
  q.width = layout.width;
  if (values.is_cuda()) {
    q.parts = layout.channels;
    q.apart = layout.pixels();
  } else {
    q.width *= layout.channels;
  }
  return q;
}

std::uint8_t* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::uint8_t*>(tensor.data_ptr());
}

/// Whether its bytes are in the order of the kernels' floats.
bool lies_as_image(const at::Tensor& bytes) {
  return bytes.dim() == 4 ? bytes.size(0) == 1 && bytes.is_contiguous(image_format(bytes.device()))
                          : bytes.is_contiguous();
}

template <class Bind>
Operation operation_of(const char* name, const Bind& bind,
                       void (*on_cores)(const kernels::QuantizedArguments&, kernels::Share),
                       int lines) {
  return {.name = name,
          .on_cores = by_team(bind, on_cores),
          .on_gpu = gpu_call({{name, gpu::kThreads, lines, 2 * gpu::kThreads}}, bind)};
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
  return lower.add(operation_of("quantize", bind, kernels::quantize, lines.lines), {values},
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
  Operation operation = operation_of("dequantize", bind, kernels::dequantize, lines.lines);
  if (is_picture(made)) return lower.add_image(made, std::move(operation), {bytes, ranges});
  return lower.add(std::move(operation), {bytes, ranges}, {made});
}

}  // namespace

const Rules quantize_rules = {
    {"millrace::quantize", {quantize}},
    {"millrace::dequantize", {dequantize}},
};

}  // namespace millrace::program
