#include "io/source/synth_scene.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <span>
#include <utility>

#include "io/source/split_mix.h"

namespace millrace::io {
namespace {

// Lengths are in 1/256 pixel.
constexpr std::int64_t kPixel = 256;

using Colour = std::array<int, 3>;

Colour as_grey(Colour c) {
  const int luma = (77 * c[0] + 150 * c[1] + 29 * c[2]) >> 8;
  return {luma, luma, luma};
}

/// A coordinate of a shape that moves back and forth between two walls.
struct Bounce {
  std::int64_t low = 0, span = 0, start = 0, velocity = 0;

  std::int64_t at(std::int64_t frame) const {
    if (span <= 0) return low;
    const std::int64_t lap = 2 * span;
    std::int64_t way = (start + velocity * frame) % lap;
    if (way < 0) way += lap;
    return low + (way <= span ? way : lap - way);
  }
};

enum class Kind { disc, rectangle, triangle };

struct Shape {
  Kind kind = Kind::disc;
  std::int64_t radius = 0;  // of the circumscribed circle
  Bounce x, y;
  Colour light{}, dark{};                   // the texture runs between light and dark,
  std::int64_t stripe_x = 0, stripe_y = 0;  // across the shape in this direction

  /// Distance of (dx, dy) from the centre to the outline; negative outside.
  std::int64_t depth(std::int64_t dx, std::int64_t dy) const {
    switch (kind) {
      case Kind::disc:
        return (radius * radius - dx * dx - dy * dy) / (2 * radius);
      case Kind::rectangle:
        return std::min(radius * 7 / 8 - std::abs(dx), radius / 2 - std::abs(dy));
      case Kind::triangle:  // (222, 128) / 256: the unit vector at 30 degrees
        return radius / 2 - std::max(dy, (222 * std::abs(dx) - 128 * dy) / 256);
    }
    return -kPixel;
  }

  /// 0 .. 255: a smooth wave of six pixels.
  int texture(std::int64_t dx, std::int64_t dy) const {
    constexpr std::int64_t wave = 6 * kPixel;
    const std::int64_t along = ((dx * stripe_x + dy * stripe_y) / kPixel % wave + wave) % wave;
    const std::int64_t rise = along < wave / 2 ? along : wave - along;
    return int(rise * 510 / wave);
  }
};

// cos and sin of 16 directions, none along an axis, so that every shape moves in both.
constexpr std::array<std::array<std::int64_t, 2>, 4> kQuadrant = {
    {{251, 50}, {213, 142}, {142, 213}, {50, 251}}};

Bounce make_bounce(Random& random, int side, std::int64_t radius, std::int64_t velocity) {
  Bounce way;
  way.span = std::max<std::int64_t>(0, side * kPixel - 2 * radius);
  way.low = way.span > 0 ? radius : side * kPixel / 2;
  way.start = random.below(way.span + 1);
  way.velocity = velocity;
  return way;
}

Shape make_shape(Random& random, int number, int width, int height, std::int64_t speed) {
  Shape shape;
  shape.kind = Kind(number % 3);
  const std::int64_t side = std::min(width, height) * kPixel;
  shape.radius = std::max(kPixel, side / 10 + random.below(side / 8));
  const auto& [cosine, sine] = kQuadrant[random.below(4)];
  const std::int64_t sign_x = random.below(2) * 2 - 1, sign_y = random.below(2) * 2 - 1;
  shape.x = make_bounce(random, width, shape.radius, sign_x * speed * cosine / kPixel);
  shape.y = make_bounce(random, height, shape.radius, sign_y * speed * sine / kPixel);
  for (int c = 0; c < 3; ++c) {
    shape.light[c] = 120 + int(random.below(136));
    shape.dark[c] = int(random.below(90));
  }
  shape.stripe_x = random.below(2 * kPixel + 1) - kPixel;
  shape.stripe_y = random.below(2 * kPixel + 1) - kPixel;
  return shape;
}

/// Smooth noise between random values on a lattice of eight pixels.
class Noise {
 public:
  Noise(Random& random, int width, int height) : columns_(width / kCell + 2) {
    lattice_.resize(std::size_t(columns_) * (height / kCell + 2));
    for (Colour& node : lattice_) {
      for (int& value : node) value = 50 + int(random.below(110));
    }
  }
  Colour at(int x, int y) const {
    const int fx = x % kCell, fy = y % kCell;
    const Colour* node = &lattice_[std::size_t(y / kCell) * columns_ + x / kCell];
    Colour out;
    for (int c = 0; c < 3; ++c) {
      const int top = node[0][c] * (kCell - fx) + node[1][c] * fx;
      const int bottom = node[columns_][c] * (kCell - fx) + node[columns_ + 1][c] * fx;
      out[c] = (top * (kCell - fy) + bottom * fy) / (kCell * kCell);
    }
    return out;
  }

 private:
  static constexpr int kCell = 8;
  int columns_;
  std::vector<Colour> lattice_;
};

std::vector<std::uint8_t> paint_background(Random& random, const SceneOptions& options) {
  const Noise noise(random, options.width, options.height);
  std::vector<std::uint8_t> pixels;
  pixels.reserve(std::size_t(options.width) * options.height * options.channels);
  for (int y = 0; y < options.height; ++y) {
    for (int x = 0; x < options.width; ++x) {
      const Colour colour = options.channels == 1 ? as_grey(noise.at(x, y)) : noise.at(x, y);
      for (int c = 0; c < options.channels; ++c) pixels.push_back(std::uint8_t(colour[c]));
    }
  }
  return pixels;
}

void blend(const Shape& shape, int texture, int cover, std::span<std::uint8_t> pixel) {
  for (std::size_t c = 0; c < pixel.size(); ++c) {
    const int own = (shape.dark[c] * (255 - texture) + shape.light[c] * texture) / 255;
    pixel[c] = std::uint8_t((own * cover + pixel[c] * (int(kPixel) - cover)) / kPixel);
  }
}

void draw(const Shape& shape, const SceneOptions& scene, std::int64_t number,
          std::span<std::uint8_t> pixels) {
  const std::int64_t cx = shape.x.at(number), cy = shape.y.at(number);
  const auto first = [&](std::int64_t centre) {
    return int(std::max<std::int64_t>(0, (centre - shape.radius) / kPixel - 1));
  };
  const auto last = [&](std::int64_t centre, int side) {
    return int(std::min<std::int64_t>(side - 1, (centre + shape.radius) / kPixel + 1));
  };
  for (int y = first(cy); y <= last(cy, scene.height); ++y) {
    const std::int64_t dy = y * kPixel + kPixel / 2 - cy;
    for (int x = first(cx); x <= last(cx, scene.width); ++x) {
      const std::int64_t dx = x * kPixel + kPixel / 2 - cx;
      // Anti-aliasing: blends a pixel on the outline by its covered share.
      const int cover = int(std::clamp<std::int64_t>(shape.depth(dx, dy) + kPixel / 2, 0, kPixel));
      if (cover == 0) continue;
      const std::size_t at = (std::size_t(y) * scene.width + x) * scene.channels;
      blend(shape, shape.texture(dx, dy), cover, pixels.subspan(at, scene.channels));
    }
  }
}

}  // namespace

SynthScene synth_scene(const SceneOptions& options) {
  Random random(options.seed);
  std::vector<std::uint8_t> background = paint_background(random, options);
  const std::int64_t speed = std::llround(options.speed * double(kPixel));
  std::vector<Shape> shapes;
  for (int i = 0; i < options.shapes; ++i) {
    Shape& shape = shapes.emplace_back(make_shape(random, i, options.width, options.height, speed));
    if (options.channels > 1) continue;
    shape.light = as_grey(shape.light);
    shape.dark = as_grey(shape.dark);
  }
  return [options, background = std::move(background), shapes = std::move(shapes)](
             std::int64_t number, std::vector<std::uint8_t>& pixels) {
    pixels = background;
    for (const Shape& shape : shapes) draw(shape, options, number, pixels);
  };
}

}  // namespace millrace::io
