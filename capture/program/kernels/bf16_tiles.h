// Products of bfloat16 by a core's tile registers (Intel's AMX), and packing for them: what the
// machine's file gives to the kernels. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::kernels {

/// The upper half of a float, rounded to nearest even. Denormals become zero.
using Bf16 = std::uint16_t;

constexpr std::size_t kTile = 16;           ///< lines and columns of a tile of sums
constexpr std::size_t kDeep = 32;           ///< numbers that a product of tiles sums up
constexpr std::size_t kTilePack = 16 * 32;  ///< numbers of a packed tile of the right side

/// sums[i][j] (+)= left[i] times right[j]; what is null isn't made. The left side lies in lines of
/// numbers to be summed up, `parts` times `chunks` times kDeep of them, which are read fastest
/// where they lie on 64 bytes; the right side in packed tiles, one after another: [16 pairs of
/// lines][16 columns][2].
struct TileProducts {
  const Bf16* left[2] = {};
  std::size_t left_line = 0, left_part = 0;  ///< numbers from one to the next
  int parts = 1, chunks = 0;
  const Bf16* right[2] = {};
  float* sums[2][2] = {};
  std::size_t sums_line = 0;
  bool accumulate = false;
};

/// This thread's tile registers, its own while this lives: at most one at a time.
class Tiles {
 public:
  Tiles();
  ~Tiles();
  Tiles(const Tiles&) = delete;
  void multiply(const TileProducts& p) const;
};

/// Up to 32 pixels of up to 16 channels, `step` floats apart. Those outside [begin, end) are zeros
/// and not read, as are channels from `channels` on.
struct PixelRun {
  const float* first = nullptr;
  std::size_t step = 0;
  int begin = 0, end = 0, channels = 0;
};
void round_row(const float* from, std::size_t count, Bf16* to);
/// The first `count` pixels, an even number: [count / 2][16 channels][2]
void pack_pairs(const PixelRun& run, int count, Bf16* to);
/// Likewise: [16 channels][count], channels `plane` numbers apart.
void pack_planes(const PixelRun& run, int count, Bf16* to, std::size_t plane);
/// A packed tile of weights: 32 of each of 16 lines, which are `line` floats apart, at these
/// offsets in a line; negative ones and lines from `lines` on are zeros.
void pack_weights(const float* first, std::size_t line, int lines, const std::int32_t* offsets,
                  Bf16* to);
/// [16][16] sums in place, lines to columns.
void transpose_sums(float* sums);

}  // namespace millrace::kernels
