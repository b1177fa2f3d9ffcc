// bfloat16 products by tile registers (Intel AMX), and packing for them. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::kernels {

/// The upper half of a float, rounded to nearest even. Denormals become zero.
using Bf16 = std::uint16_t;

constexpr std::size_t kTile = 16;           ///< lines and columns of a tile of sums
constexpr std::size_t kDeep = 32;           ///< depth of a product of tiles
constexpr std::size_t kTilePack = 16 * 32;  ///< numbers of a packed right tile

/// sums[i][j] (+)= left[i] times right[j], where not null. The left side has lines of `parts` times
/// `chunks` times kDeep numbers to sum over, read fastest if 64-byte aligned; the right side has
/// contiguous packed tiles [16 pairs of lines][16 columns][2].
struct TileProducts {
  const Bf16* left[2] = {};
  std::size_t left_line = 0, left_part = 0;  ///< numbers between neighbours
  int parts = 1, chunks = 0;
  const Bf16* right[2] = {};
  float* sums[2][2] = {};
  std::size_t sums_line = 0;
  bool accumulate = false;
};

/// Owns this thread's tile registers while it lives: one at a time per thread.
class Tiles {
 public:
  Tiles();
  ~Tiles();
  Tiles(const Tiles&) = delete;
  void multiply(const TileProducts& p) const;
};

/// Up to 32 pixels of up to 16 channels, `step` floats apart. Those outside [begin, end) and
/// channels from `channels` on are zeros and not read.
struct PixelRun {
  const float* first = nullptr;
  std::size_t step = 0;
  int begin = 0, end = 0, channels = 0;
};
void round_row(const float* from, std::size_t count, Bf16* to);
/// The first `count` pixels, an even number, as [count / 2][16 channels][2].
void pack_pairs(const PixelRun& run, int count, Bf16* to);
/// The same as [16 channels][count], channels `plane` numbers apart.
void pack_planes(const PixelRun& run, int count, Bf16* to, std::size_t plane);
/// A packed tile of weights: 32 from each of 16 lines, `line` floats apart, at `offsets` in a line;
/// zeros for negative offsets and for lines from `lines` on.
void pack_weights(const float* first, std::size_t line, int lines, const std::int32_t* offsets,
                  Bf16* to);
/// Transposes [16][16] sums in place.
void transpose_sums(float* sums);

}  // namespace millrace::kernels
