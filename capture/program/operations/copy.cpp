// Copies, {source} -> {destination}, concatenation, which is several, and zeros, {} -> {made}.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

std::unique_ptr<Prepared> prepare_copy(const Node& node, int) {
  const at::Tensor from = node.reads[0], to = node.writes[0];
  const auto turned = [&](const char* kind, std::size_t rows, std::size_t columns) {
    const auto turn = [=](const Ends& at) { kernels::turn(at.from, rows, columns, at.to); };
    auto made = by_one(ends, turn)(node, 1);
    made->info.name = kind;
    return made;
  };
  if (!lie_alike(from, to) && is_image(to) && from.is_contiguous())
    return turned("copy of planes to pixels", to.size(1), layout_of(to).pixels());
  if (!lie_alike(from, to) && is_image(from) && to.is_contiguous())
    return turned("copy of pixels to planes", layout_of(from).pixels(), from.size(1));
  const kernels::MapArguments m = bind_map(node, {});
  const int last = m.dimensions - 1;
  const bool in_rows = m.left.strides[last] == 1 && m.made_strides[last] == 1;
  return by_one([](const Node& n, char*) { return bind_map(n, {}); },
                [=](const kernels::MapArguments& bound) {
                  in_rows ? kernels::map(bound) : kernels::copy(bound);
                })(node, 1);
}

// new_zeros, zeros, zeros_like, zero_
bool zero(Lowering& lower, const Call& call) {
  const at::Tensor& made = result(call);
  const auto clear = [bytes = made.nbytes()](const Ends& at) { std::memset(at.to, 0, bytes); };
  return is_dense(made) && lower.add({.name = "zero",
                                      .constant = true,
                                      .on_cores = by_one(ends, clear),
                                      .on_gpu = operation_of({}).on_gpu},
                                     {}, {made});
}

bool copies(Lowering& lower, const at::Tensor& from, const at::Tensor& to) {
  if (!is_copyable(from) || !is_copyable(to) || from.device() != to.device() ||
      from.sizes() != to.sizes() || by_stride(to).size() > kernels::kMostDimensions)
    return false;
  const bool image =
      is_picture(from) && !lie_alike(from, to) && is_image(to) && lower.has_image(from);
  return lower.copy(image ? lower.read(from) : from, to);
}

// cat(tensors, dim)
bool concatenation(Lowering& lower, const Call& call) {
  const std::vector<at::Tensor> parts = call.arguments[0].toTensorVector();
  const at::Tensor& made = result(call);
  const std::int64_t side = call.arguments[1].toInt();
  const auto fits = [&](const at::Tensor& part) {
    return is_copyable(part) && part.dim() == made.dim() && part.device() == made.device();
  };
  if (!is_dense(made) || made.dim() > kernels::kMostDimensions ||
      !std::all_of(parts.begin(), parts.end(), fits))
    return false;
  const at::Tensor to = is_picture(made) ? lower.image_for(made) : made;
  std::int64_t begin = 0;
  for (const at::Tensor& part : parts) {
    if (part.numel() == 0) continue;
    const at::Tensor there = to.narrow(side, begin, part.size(side));
    lower.copy(is_picture(part) && is_image(to) ? lower.read(part) : part, there);
    begin += part.size(side);
  }
  return lower.written(made, to);
}

bool copy(Lowering& lower, const Call& call) {
  return copies(lower, tensor(call, 1), tensor(call, 0));
}
bool clone(Lowering& lower, const Call& call) {
  return copies(lower, tensor(call, 0), result(call));
}

}  // namespace

Operation make_copy() {
  return {
      .name = "copy", .copy = true, .on_cores = prepare_copy, .on_gpu = operation_of({}).on_gpu};
}

const Rules copy_rules = {
    {"aten::new_zeros", {zero}}, {"aten::zeros", {zero}},        {"aten::zeros_like", {zero}},
    {"aten::zero_", {zero}},     {"aten::cat", {concatenation}}, {"aten::copy_", {copy}},
    {"aten::clone", {clone}},    {"aten::_to_copy", {clone}},
};

}  // namespace millrace::program
