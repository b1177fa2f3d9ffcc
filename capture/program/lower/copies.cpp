#include <ATen/ATen.h>

#include <algorithm>

#include "capture/program/lower/lowering.h"

namespace millrace::program {
namespace {

// add_up(part, reducer, place)
bool add_up(Lowering& lower, const Call& call) {
  const at::Tensor &part = tensor(call, 0), &made = result(call);
  return are_pictures(part, made) &&
         lower.add_image(made, {.kind = Kind::add_up, .reads = {lower.read(part)}});
}

// new_zeros, zeros, zeros_like, zero_
bool zero(Lowering& lower, const Call& call) {
  return is_dense(result(call)) && lower.add({.kind = Kind::zero, .writes = {result(call)}});
}

bool copies(Lowering& lower, const at::Tensor& from, const at::Tensor& to) {
  if (!is_copyable(from) || !is_copyable(to) || from.device() != to.device() ||
      from.sizes() != to.sizes())
    return false;
  const bool image =
      is_picture(from) && !lie_alike(from, to) && is_image(to) && lower.has_image(from);
  return lower.add(
      {.kind = Kind::copy, .reads = {image ? lower.read(from) : from}, .writes = {to}});
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
    lower.add({.kind = Kind::copy,
               .reads = {lower.read(part)},
               .writes = {image.narrow(1, channel, part.size(1))}});
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

// sample_of_bytes(bytes, sample)
bool sample_of_bytes(Lowering& lower, const Call& call) {
  const at::Tensor &bytes = tensor(call, 0), &sample = tensor(call, 1);
  return lower.on_gpu() && bytes.is_contiguous() && is_image(sample) &&
         lower.add({.kind = Kind::sample_of_bytes, .reads = {bytes}, .writes = {sample}});
}

// copy_bytes(to, from). Each node of a graph that copies takes an H100 some 10 us longer than a
// kernel; large copies leave the SMs to others.
bool copy_bytes(Lowering& lower, const Call& call) {
  constexpr std::size_t kMost = 1 << 20;  // bytes, 20 us
  const at::Tensor &to = tensor(call, 0), &from = tensor(call, 1);
  return lower.on_gpu() && to.is_cpu() != from.is_cpu() && from.nbytes() <= kMost &&
         lower.add({.kind = Kind::transfer, .reads = {from}, .writes = {to}});
}

// check_and_update(weights, to, gradient, state[], memory[], numbers, rate, skipped, finite?)
bool update(Lowering& lower, const Call& call) {
  const at::Tensor &from = tensor(call, 0), &to = tensor(call, 1), &gradient = tensor(call, 2),
                   &rate = tensor(call, 6), &skipped = tensor(call, 7);
  if (!is_dense(from) || !is_dense(gradient) || !is_dense(skipped) ||
      rate.scalar_type() != at::kDouble)
    return false;
  std::vector<at::Tensor> reads = {from, gradient, rate, optional(call, 8)},
                          writes = {result(call), skipped, to};
  for (const std::size_t list : {3, 4}) {
    for (const at::Tensor& kept : call.arguments[list].toTensorVector()) {
      reads.push_back(kept);
      writes.push_back(kept);
    }
  }
  return lower.add({.kind = Kind::update, .reads = std::move(reads), .writes = std::move(writes)});
}

}  // namespace

const Rules copy_rules = {
    {"aten::new_zeros", {zero}},
    {"aten::zeros", {zero}},
    {"aten::zeros_like", {zero}},
    {"aten::zero_", {zero}},
    {"aten::cat", {concatenation}},
    {"aten::copy_", {copy}},
    {"aten::clone", {clone}},
    {"aten::_to_copy", {clone}},
    {"millrace::add_up", {add_up, false}},
    {"millrace::check_and_update", {update}},
    {"millrace::copy_bytes", {copy_bytes}},
    {"millrace::sample_of_bytes", {sample_of_bytes}},
};

}  // namespace millrace::program
