// bfloat16 products by tile registers, and packing for them, on processors with Intel AMX. Sums are
// in tile registers 0 to 3, the left side in 4 and 5, the right in 6 and 7. For bf16.cpp.
#pragma once

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

// GCC 12 warns of the intrinsics' undefined vectors.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Per function, so that no code shared with other files is compiled for AMX.
#define MILLRACE_AMX \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")))

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

/// The processor's format: eight tiles of 16 lines of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t line_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t lines[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Linux grants tile memory on request, for all threads of the process.
inline bool ask_for_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if (!(d & kAmxBf16) || !(d & kAmxTile)) return false;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) return false;
  constexpr unsigned kAvx512Bf16 = 1u << 5;
  return (a & kAvx512Bf16) && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

template <bool kTwoLeft, bool kTwoRight>
MILLRACE_AMX void multiply_tiles(const TileProducts& p) {
  constexpr bool kAll = kTwoLeft && kTwoRight;
  const std::size_t line = p.left_line * sizeof(Bf16), sums_line = p.sums_line * sizeof(float);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (p.accumulate) {
    _tile_loadd(0, p.sums[0][0], sums_line);
    if constexpr (kTwoRight) _tile_loadd(1, p.sums[0][1], sums_line);
    if constexpr (kTwoLeft) _tile_loadd(2, p.sums[1][0], sums_line);
    if constexpr (kAll) _tile_loadd(3, p.sums[1][1], sums_line);
  }
  std::size_t right = 0;
  for (int part = 0; part < p.parts; ++part) {
    std::size_t left = std::size_t(part) * p.left_part;
    for (int chunk = 0; chunk < p.chunks; ++chunk, left += kDeep, right += kTilePack) {
      _tile_loadd(4, p.left[0] + left, line);
      _tile_loadd(6, p.right[0] + right, 64);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kTwoRight) _tile_loadd(7, p.right[1] + right, 64);
      if constexpr (kTwoRight) _tile_dpbf16ps(1, 4, 7);
      if constexpr (kTwoLeft) _tile_loadd(5, p.left[1] + left, line);
      if constexpr (kTwoLeft) _tile_dpbf16ps(2, 5, 6);
      if constexpr (kAll) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, p.sums[0][0], sums_line);
  if constexpr (kTwoRight) _tile_stored(1, p.sums[0][1], sums_line);
  if constexpr (kTwoLeft) _tile_stored(2, p.sums[1][0], sums_line);
  if constexpr (kAll) _tile_stored(3, p.sums[1][1], sums_line);
}

/// Owns this thread's tile registers while it lives: one at a time per thread.
class Tiles {
 public:
  MILLRACE_AMX Tiles() {
    static constexpr TileConfig config;
    _tile_loadconfig(&config);
  }
  MILLRACE_AMX ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;

  void multiply(const TileProducts& p) const {
    asm volatile("" ::: "memory");  // tile loads are not reads to the compiler
    if (p.left[1] && p.right[1]) return multiply_tiles<true, true>(p);
    if (p.left[1]) return multiply_tiles<true, false>(p);
    if (p.right[1]) return multiply_tiles<false, true>(p);
    multiply_tiles<false, false>(p);
  }
};

/// Up to 32 pixels of up to 16 channels, `step` floats apart. Those outside [begin, end) and
/// channels from `channels` on are zeros and not read.
struct PixelRun {
  const float* first = nullptr;
  std::size_t step = 0;
  int begin = 0, end = 0, channels = 0;
};
/// Two lines of 16, rounded and interleaved.
MILLRACE_AMX inline __m512i pairs_of(__m512 even, __m512 odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, __m512i(_mm512_cvtne2ps_pbh(odd, even)));
}

/// Pixels 2 i and 2 i + 1 of a run. Skips absent ones: masked loads from unmapped memory are slow.
MILLRACE_AMX inline __m512i pair_of(const PixelRun& run, int i) {
  const auto channels = __mmask16((1u << run.channels) - 1);
  __m512 pixels[2];
#pragma GCC unroll 2
  for (int k = 0; k < 2; ++k) {
    const int pixel = 2 * i + k;
    pixels[k] = _mm512_setzero_ps();
    if (pixel >= run.begin && pixel < run.end)
      pixels[k] = _mm512_maskz_loadu_ps(channels, run.first + std::ptrdiff_t(pixel) * run.step);
  }
  return pairs_of(pixels[0], pixels[1]);
}

/// All 16 pairs of a full run.
MILLRACE_AMX inline void pairs_of(const PixelRun& run, __m512i (&pairs)[16]) {
  const auto channels = __mmask16((1u << run.channels) - 1);
  const float* at = run.first;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i, at += 2 * run.step)
    pairs[i] = pairs_of(_mm512_maskz_loadu_ps(channels, at),
                        _mm512_maskz_loadu_ps(channels, at + run.step));
}
inline bool is_whole(const PixelRun& run, int count) {
  return count == 32 && run.begin == 0 && run.end == 32;
}

/// Element c of v[r] becomes element r of v[c].
MILLRACE_AMX inline void transpose(__m512i (&v)[16]) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    const __m512i low01 = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    const __m512i high01 = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i low23 = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]);
    const __m512i high23 = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    t[i] = _mm512_unpacklo_epi64(low01, low23);
    t[i + 1] = _mm512_unpackhi_epi64(low01, low23);
    t[i + 2] = _mm512_unpacklo_epi64(high01, high23);
    t[i + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    const __m512i even01 = _mm512_shuffle_i32x4(t[i], t[4 + i], 0x88);
    const __m512i odd01 = _mm512_shuffle_i32x4(t[i], t[4 + i], 0xdd);
    const __m512i even23 = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0x88);
    const __m512i odd23 = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0xdd);
    v[i] = _mm512_shuffle_i32x4(even01, even23, 0x88);
    v[4 + i] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
    v[8 + i] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
    v[12 + i] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
  }
}

MILLRACE_AMX inline void round_row(const float* from, std::size_t count, Bf16* to) {
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m512bh v =
        _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i));
    _mm512_storeu_si512(to + i, __m512i(v));
  }
  for (; i < count; i += 16) {
    const auto left = __mmask16((1u << std::min<std::size_t>(count - i, 16)) - 1);
    const __m256bh v = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(left, from + i));
    _mm256_mask_storeu_epi16(to + i, left, __m256i(v));
  }
}

/// The first `count` pixels, an even number, as [count / 2][16 channels][2].
MILLRACE_AMX inline void pack_pairs(const PixelRun& run, int count, Bf16* to) {
  if (!is_whole(run, count)) {
    for (int i = 0; i < count / 2; ++i) _mm512_storeu_si512(to + 32 * i, pair_of(run, i));
    return;
  }
  __m512i pairs[16];
  pairs_of(run, pairs);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + 32 * i, pairs[i]);
}

/// Packs the first `count` pixels as [16 channels][count], channels `plane` numbers apart.
MILLRACE_AMX inline void pack_planes(const PixelRun& run, int count, Bf16* to, std::size_t plane) {
  __m512i pairs[16];
  if (is_whole(run, count)) {
    pairs_of(run, pairs);
  } else {
    for (int i = 0; i < 16; ++i)
      pairs[i] = 2 * i < count ? pair_of(run, i) : _mm512_setzero_si512();
  }
  transpose(pairs);
  const auto pixels = __mmask32((std::uint64_t(1) << count) - 1);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    _mm512_mask_storeu_epi16(to + std::size_t(i) * plane, pixels, pairs[i]);
}

/// A packed tile of weights: 32 from each of 16 lines, `line` floats apart, at `offsets` in a line;
/// zeros for negative offsets and for lines from `lines` on.
MILLRACE_AMX inline void pack_weights(const float* first, std::size_t line, int lines,
                                      const std::int32_t* offsets, Bf16* to) {
  const __m512i numbers = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i places = _mm512_mullo_epi32(numbers, _mm512_set1_epi32(int(line)));
  const auto all = __mmask16((1u << lines) - 1);
  for (int i = 0; i < 16; ++i) {
    __m512 weights[2];
    for (int k = 0; k < 2; ++k) {
      const std::int32_t offset = offsets[2 * i + k];
      weights[k] = _mm512_setzero_ps();
      if (offset >= 0)
        weights[k] = _mm512_mask_i32gather_ps(weights[k], all, places, first + offset, 4);
    }
    _mm512_storeu_si512(to + 32 * i, pairs_of(weights[0], weights[1]));
  }
}

/// Transposes [16][16] sums in place.
MILLRACE_AMX inline void transpose_sums(float* sums) {
  __m512i lines[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) lines[i] = _mm512_loadu_si512(sums + 16 * i);
  transpose(lines);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(sums + 16 * i, lines[i]);
}

}  // namespace millrace::kernels
