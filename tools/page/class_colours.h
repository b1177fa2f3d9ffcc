// The colours of classes, as pictures of segmentation have them.
#pragma once

#include <array>
#include <cstdint>

namespace millrace::page {

/// Red, green and blue of class `number`, 0 to 255, in Pascal VOC's colour map: the number's bits
/// become the highest bits of the three colours in turn. io::kNoClass is VOC's pale yellow.
inline std::array<std::uint8_t, 3> class_colour(int number) {
  std::array<std::uint8_t, 3> colour{};
  for (int bit = 7; number > 0; --bit, number >>= 3) {
    for (int c = 0; c < 3; ++c) colour[std::size_t(c)] |= std::uint8_t((number >> c & 1) << bit);
  }
  return colour;
}

}  // namespace millrace::page
