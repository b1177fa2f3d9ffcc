// Processors without tile registers.
#include <cstdlib>

#include "capture/program/kernels/bf16_tiles.h"
#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {

bool has_bf16() {
  return false;
}

// Not called where there is no bf16.
Tiles::Tiles() {
  std::abort();
}
Tiles::~Tiles() = default;
void Tiles::multiply(const TileProducts&) const {}
void round_row(const float*, std::size_t, Bf16*) {}
void pack_pairs(const PixelRun&, int, Bf16*) {}
void pack_planes(const PixelRun&, int, Bf16*, std::size_t) {}
void pack_weights(const float*, std::size_t, int, const std::int32_t*, Bf16*) {}
void transpose_sums(float*) {}

}  // namespace millrace::kernels
