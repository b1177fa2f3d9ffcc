// On a GPU: a sample from a picture's bytes, {bytes [H,W,C]} -> {sample}; bytes between pinned
// memory and the GPU, {source} -> {destination}.
#include <ATen/ATen.h>

#include <algorithm>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

std::unique_ptr<Prepared> transfer(const Node& node) {
  constexpr int kMostBlocks = 32;  // so many keep PCIe busy
  const auto bytes = int(node.reads[0].nbytes());
  const auto common = std::uintptr_t(node.reads[0].const_data_ptr()) |
                      std::uintptr_t(node.writes[0].const_data_ptr()) | std::uintptr_t(bytes);
  const char* const unit = common % 16 == 0  ? "float4"
                           : common % 8 == 0 ? "double"
                           : common % 4 == 0 ? "float"
                                             : "char";
  const int blocks = std::clamp(gpu::divided_up(bytes, 16 * gpu::kThreads), 1, kMostBlocks);
  return gpu_call({{std::string("copy_bytes<") + unit + ">", gpu::kThreads, blocks}},
                  [=](const Node& n, char*) {
                    return gpu::CopyArguments{.from = n.reads[0].const_data_ptr(),
                                              .to = n.writes[0].mutable_data_ptr(),
                                              .bytes = bytes,
                                              .blocks = blocks,
                                              .to_host = n.writes[0].is_cpu()};
                  })(node);
}

// sample_of_bytes(bytes, sample)
bool sample_of_bytes(Lowering& lower, const Call& call) {
  const at::Tensor &bytes = tensor(call, 0), &sample = tensor(call, 1);
  if (!lower.on_gpu() || !bytes.is_contiguous() || !is_image(sample)) return false;
  const kernels::Layout l = layout_of(sample);
  const int pixels = l.height * l.width;
  const auto bind = [=](const Node& n, char*) {
    return gpu::BytesArguments{static_cast<const unsigned char*>(n.reads[0].const_data_ptr()),
                               floats(n.writes[0]), l.channels, pixels};
  };
  return lower.add({.name = "sample of bytes",
                    .on_gpu = gpu_call({per_element("sample_of_bytes", pixels)}, bind)},
                   {bytes}, {sample});
}

// copy_bytes(to, from). Each node of a graph that copies takes an H100 some 10 us longer than a
// kernel; large copies leave the SMs to others.
bool copy_bytes(Lowering& lower, const Call& call) {
  constexpr std::size_t kMost = 1 << 20;  // bytes, 20 us
  const at::Tensor &to = tensor(call, 0), &from = tensor(call, 1);
  return lower.on_gpu() && to.is_cpu() != from.is_cpu() && from.nbytes() <= kMost &&
         lower.add({.name = from.is_cpu() ? "copy from host" : "copy to host", .on_gpu = transfer},
                   {from}, {to});
}

}  // namespace

const Rules bytes_rules = {
    {"millrace::copy_bytes", {copy_bytes}},
    {"millrace::sample_of_bytes", {sample_of_bytes}},
};

}  // namespace millrace::program
