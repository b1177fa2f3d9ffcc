// Copies, {source} -> {destination}, concatenation, which is several, and zeros, {} -> {made}.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

/// Whether channels are adjacent, whatever the pixel stride.
bool has_pixels(const at::Tensor& t) {
  return t.dim() == 4 && t.size(0) == 1 && t.stride(1) == 1;
}

std::unique_ptr<Prepared> prepare_copy(const Node& node, int) {
  const at::Tensor from = node.reads[0], to = node.writes[0];
  const auto call = [&](const char* kind, KernelCall copy) {
    auto made = by_one(std::move(copy))(node, 1);
    made->info.name = kind;
    return made;
  };
  if (lie_alike(from, to)) {
    return call("copy", [bytes = from.nbytes()](const Addresses& at, kernels::Share) {
      std::memcpy(at.writes[0], at.reads[0], bytes);
    });
  }
  if (is_image(to) && from.is_contiguous()) {
    return call("copy of planes to pixels", [=](const Addresses& at, kernels::Share) {
      kernels::from_planes(at.reads[0], at.writes[0], layout_of(to));
    });
  }
  if (is_image(from) && to.is_contiguous()) {
    return call("copy of pixels to planes", [=](const Addresses& at, kernels::Share) {
      kernels::to_planes(at.reads[0], layout_of(from), at.writes[0]);
    });
  }
  if (has_pixels(from) && has_pixels(to)) {
    return call("copy of some channels", [=](const Addresses& at, kernels::Share) {
      for (std::int64_t y = 0; y < to.size(2); ++y) {
        for (std::int64_t x = 0; x < to.size(3); ++x)
          std::copy_n(at.reads[0] + y * from.stride(2) + x * from.stride(3), to.size(1),
                      at.writes[0] + y * to.stride(2) + x * to.stride(3));
      }
    });
  }
  auto made = call("copy", [=](const Addresses&, kernels::Share) { to.copy_(from); });
  made->info.kernel = capture::kLibTorch;
  return made;
}

Operation zero_of(const at::Tensor& made) {
  return {.name = "zero",
          .constant = true,
          .on_cores = by_one([bytes = made.nbytes()](const Addresses& at, kernels::Share) {
            std::memset(at.writes[0], 0, bytes);
          }),
          .on_gpu = gpu_map("Copied")};
}

// new_zeros, zeros, zeros_like, zero_
bool zero(Lowering& lower, const Call& call) {
  return is_dense(result(call)) && lower.add(zero_of(result(call)), {}, {result(call)});
}

bool copies(Lowering& lower, const at::Tensor& from, const at::Tensor& to) {
  if (!is_copyable(from) || !is_copyable(to) || from.device() != to.device() ||
      from.sizes() != to.sizes())
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
  if ((side != 1 && side != -3) || !is_picture(made) ||
      !std::all_of(parts.begin(), parts.end(), is_picture))
    return false;
  const at::Tensor image = lower.image_for(made);
  std::int64_t channel = 0;
  for (const at::Tensor& part : parts) {
    lower.copy(lower.read(part), image.narrow(1, channel, part.size(1)));
    channel += part.size(1);
  }
  return lower.written(made, image);
}

bool copy(Lowering& lower, const Call& call) {
  return copies(lower, tensor(call, 1), tensor(call, 0));
}
bool clone(Lowering& lower, const Call& call) {
  return copies(lower, tensor(call, 0), result(call));
}

}  // namespace

Operation make_copy() {
  return {.name = "copy", .copy = true, .on_cores = prepare_copy, .on_gpu = gpu_map("Copied")};
}

const Rules copy_rules = {
    {"aten::new_zeros", {zero}}, {"aten::zeros", {zero}},        {"aten::zeros_like", {zero}},
    {"aten::zero_", {zero}},     {"aten::cat", {concatenation}}, {"aten::copy_", {copy}},
    {"aten::clone", {clone}},    {"aten::_to_copy", {clone}},
};

}  // namespace millrace::program
