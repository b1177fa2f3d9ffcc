// synth:shapes?shapes=4&speed=1.5&frames=300: number of shapes, pixels per frame, length (0:
// endless). &scenes=3&switch=100: scenes take turns of that many frames. &order=random: a scene
// lasts that many frames on average, then a random other one follows. &drift=0.4: every 500 frames
// the light falls by that share and rises again. A frame's label is its scene.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "io/source/source_kinds.h"
#include "io/source/split_mix.h"
#include "io/text/nearest_name.h"

namespace millrace::io {
namespace {

constexpr int kMaxSide = 16384;
constexpr std::int64_t kDriftPeriod = 500;

struct StreamOptions {
  int width = 64, height = 64;
  int channels = 3;  ///< 3: RGB, 1: grey
  int shapes = 4;
  double speed = 1.0;       ///< per frame, the same for every shape
  std::uint64_t seed = 0;   ///< of scene 0; the others have the next ones
  std::int64_t frames = 0;  ///< 0: endless
  int scenes = 1;
  std::int64_t turn = 100;  ///< frames per scene
  bool random = false;      ///< order=random
  double drift = 0;         ///< share by which the light falls
};

// Lengths are in 1/256 pixel.
constexpr std::int64_t kPixel = 256;

using Colour = std::array<int, 3>;

/// In a grey stream the colour's luma.
Colour toned(const StreamOptions& options, Colour c) {
  if (options.channels > 1) return c;
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
    if (kind == Kind::disc) return (radius * radius - dx * dx - dy * dy) / (2 * radius);
    if (kind == Kind::rectangle)
      return std::min(radius * 7 / 8 - std::abs(dx), radius / 2 - std::abs(dy));
    // A triangle; (222, 128) / 256 is the unit vector at 30 degrees.
    return radius / 2 - std::max(dy, (222 * std::abs(dx) - 128 * dy) / 256);
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
  const std::int64_t span = std::max<std::int64_t>(0, side * kPixel - 2 * radius);
  return {span > 0 ? radius : side * kPixel / 2, span, random.below(span + 1), velocity};
}

Shape make_shape(Random& random, int number, const StreamOptions& options) {
  Shape shape;
  shape.kind = Kind(number % 3);
  const std::int64_t speed = std::llround(options.speed * double(kPixel));
  const std::int64_t side = std::min(options.width, options.height) * kPixel;
  shape.radius = std::max(kPixel, side / 10 + random.below(side / 8));
  const auto& [cosine, sine] = kQuadrant[random.below(4)];
  const std::int64_t sign_x = random.below(2) * 2 - 1, sign_y = random.below(2) * 2 - 1;
  shape.x = make_bounce(random, options.width, shape.radius, sign_x * speed * cosine / kPixel);
  shape.y = make_bounce(random, options.height, shape.radius, sign_y * speed * sine / kPixel);
  for (int c = 0; c < 3; ++c) {
    shape.light[c] = 120 + int(random.below(136));
    shape.dark[c] = int(random.below(90));
  }
  shape.light = toned(options, shape.light);
  shape.dark = toned(options, shape.dark);
  shape.stripe_x = random.below(2 * kPixel + 1) - kPixel;
  shape.stripe_y = random.below(2 * kPixel + 1) - kPixel;
  return shape;
}

/// Smooth noise between random values on a lattice of eight pixels.
std::vector<std::uint8_t> paint_background(Random& random, const StreamOptions& options) {
  constexpr int kCell = 8;
  const int columns = options.width / kCell + 2;
  std::vector<Colour> lattice(std::size_t(columns) * (options.height / kCell + 2));
  for (Colour& node : lattice)
    for (int& value : node) value = 50 + int(random.below(110));
  const auto noise = [&](int x, int y) {
    const int fx = x % kCell, fy = y % kCell;
    const Colour* const node = &lattice[std::size_t(y / kCell) * columns + x / kCell];
    Colour out;
    for (int c = 0; c < 3; ++c) {
      const int top = node[0][c] * (kCell - fx) + node[1][c] * fx;
      const int bottom = node[columns][c] * (kCell - fx) + node[columns + 1][c] * fx;
      out[c] = (top * (kCell - fy) + bottom * fy) / (kCell * kCell);
    }
    return out;
  };
  std::vector<std::uint8_t> pixels;
  pixels.reserve(std::size_t(options.width) * options.height * options.channels);
  for (int y = 0; y < options.height; ++y) {
    for (int x = 0; x < options.width; ++x) {
      const Colour colour = toned(options, noise(x, y));
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

void draw(const Shape& shape, const StreamOptions& options, std::int64_t number,
          std::span<std::uint8_t> pixels) {
  const std::int64_t cx = shape.x.at(number), cy = shape.y.at(number);
  const auto first = [&](std::int64_t centre) {
    return int(std::max<std::int64_t>(0, (centre - shape.radius) / kPixel - 1));
  };
  const auto last = [&](std::int64_t centre, int side) {
    return int(std::min<std::int64_t>(side - 1, (centre + shape.radius) / kPixel + 1));
  };
  for (int y = first(cy); y <= last(cy, options.height); ++y) {
    const std::int64_t dy = y * kPixel + kPixel / 2 - cy;
    for (int x = first(cx); x <= last(cx, options.width); ++x) {
      const std::int64_t dx = x * kPixel + kPixel / 2 - cx;
      // Anti-aliasing: blends a pixel on the outline by its covered share.
      const int cover = int(std::clamp<std::int64_t>(shape.depth(dx, dy) + kPixel / 2, 0, kPixel));
      if (cover == 0) continue;
      const std::size_t at = (std::size_t(y) * options.width + x) * options.channels;
      blend(shape, shape.texture(dx, dy), cover, pixels.subspan(at, options.channels));
    }
  }
}

/// Textured shapes that move at constant velocity over a textured, still background and bounce off
/// its edges. Integer functions of the frame's number: same options, same bytes on any machine.
struct Scene {
  Scene(const StreamOptions& options, std::uint64_t seed) {
    Random random(seed);
    background = paint_background(random, options);
    for (int i = 0; i < options.shapes; ++i) shapes.push_back(make_shape(random, i, options));
  }

  std::vector<std::uint8_t> background;
  std::vector<Shape> shapes;
};

class SynthSource : public Source {
 public:
  SynthSource(const StreamOptions& stream, double fps)
      : stream_(stream), fps_(fps), random_(stream.seed) {
    for (int i = 0; i < stream.scenes; ++i)
      scenes_.emplace_back(stream, stream.seed + std::uint64_t(i));
  }

  SourceInfo info() const override {
    return {.kind = "synth",
            .caps = stream_.channels == 3 ? "synthetic RGB" : "synthetic GRAY8",
            .width = stream_.width,
            .height = stream_.height,
            .fps = fps_,
            .duration_s = double(stream_.frames) / fps_,
            .classes = stream_.scenes > 1 ? stream_.scenes : 0};
  }

  ReadStatus read(Frame& out, std::chrono::milliseconds) override {
    if (stream_.frames > 0 && next_ >= stream_.frames) return ReadStatus::end;
    out.reshape(stream_.width, stream_.height, stream_.channels);
    out.pts = std::chrono::nanoseconds(std::int64_t(double(next_) * 1e9 / fps_));
    choose_scene();
    out.label = scenes_.size() > 1 ? scene_ : -1;
    const Scene& scene = scenes_[std::size_t(scene_)];
    out.pixels = scene.background;
    for (const Shape& shape : scene.shapes) draw(shape, stream_, next_, out.pixels);
    dim(out.pixels);
    ++next_;
    return ReadStatus::frame;
  }

  bool rewind() override {
    next_ = 0;
    random_ = Random(stream_.seed);
    scene_ = 0;
    return true;
  }

 private:
  void choose_scene() {
    if (!stream_.random) scene_ = int(next_ / stream_.turn % stream_.scenes);
    // Stays have geometrically distributed lengths.
    else if (next_ > 0 && stream_.scenes > 1 && random_.below(stream_.turn) == 0)
      scene_ = int((scene_ + 1 + random_.below(stream_.scenes - 1)) % stream_.scenes);
  }

  /// In 256ths, so that the bytes are the same on every machine.
  void dim(std::vector<std::uint8_t>& pixels) const {
    const std::int64_t phase = next_ % kDriftPeriod, half = kDriftPeriod / 2;
    const std::int64_t way = phase < half ? phase : kDriftPeriod - phase;
    const auto light = int(256 - std::int64_t(stream_.drift * 256) * way / half);
    if (light == 256) return;
    for (std::uint8_t& pixel : pixels) pixel = std::uint8_t(pixel * light / 256);
  }

  const StreamOptions stream_;
  std::vector<Scene> scenes_;
  const double fps_;
  Random random_;  // of the scenes' order
  int scene_ = 0;
  std::int64_t next_ = 0;
};

constexpr std::array<std::string_view, 2> kOrders = {"turns", "random"};

struct Parameter {
  std::string_view name;
  double most;
  void (*set)(StreamOptions& stream, double value);
};
constexpr Parameter kParameters[] = {
    {"drift", 1, [](StreamOptions& s, double value) { s.drift = value; }},
    {"frames", 1e15, [](StreamOptions& s, double value) { s.frames = std::int64_t(value); }},
    {"scenes", 100, [](StreamOptions& s, double value) { s.scenes = std::max(1, int(value)); }},
    {"shapes", 1000, [](StreamOptions& s, double value) { s.shapes = int(value); }},
    {"speed", 1e4, [](StreamOptions& s, double value) { s.speed = value; }},
    {"switch", 1e15, [](StreamOptions& s, double value) {
       s.turn = std::max<std::int64_t>(1, std::int64_t(value));
     }}};

void set_parameter(const SourceOptions& options, std::string_view name, std::string_view text,
                   StreamOptions& stream) {
  if (name == "order") {
    stream.random = text == "random";
    if (std::ranges::count(kOrders, text) > 0) return;
    throw source_error(options, "order is \"" + std::string(text) +
                                    "\"; the nearest known one is \"" +
                                    nearest_name(text, kOrders) + "\"");
  }
  std::vector<std::string_view> known = {"order"};
  for (const Parameter& parameter : kParameters) {
    known.push_back(parameter.name);
    if (parameter.name != name) continue;
    double value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (whole && value >= 0 && value <= parameter.most) return parameter.set(stream, value);
    throw source_error(options, std::string(name) + " must be a number from 0 to " +
                                    std::to_string(std::int64_t(parameter.most)));
  }
  std::sort(known.begin(), known.end());
  throw source_error(options, "unknown parameter \"" + std::string(name) +
                                  "\"; the nearest known one is \"" + nearest_name(name, known) +
                                  "\"");
}

StreamOptions asked_of(const SourceOptions& options) {
  const std::string rest = split_uri(options.uri).rest;
  const std::size_t question = std::min(rest.find('?'), rest.size());
  if (rest.substr(0, question) != "shapes")
    throw source_error(options, "unknown synthetic stream; the one there is: synth:shapes");
  StreamOptions stream;
  if (options.width > 0) stream.width = options.width;
  if (options.height > 0) stream.height = options.height;
  if (stream.width > kMaxSide || stream.height > kMaxSide)
    throw source_error(options, "a side is at most " + std::to_string(kMaxSide) + " pixels");
  stream.channels = options.channels;
  stream.seed = options.seed;
  std::string_view query = std::string_view(rest).substr(std::min(question + 1, rest.size()));
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(item.size() + 1, query.size()));
    const std::string_view name = item.substr(0, item.find('='));
    set_parameter(options, name, item.substr(std::min(name.size() + 1, item.size())), stream);
  }
  return stream;
}

}  // namespace

void check_synth(const SourceOptions& options) {
  asked_of(options);
}

std::unique_ptr<Source> open_synth(const SourceOptions& options) {
  return std::make_unique<SynthSource>(asked_of(options), rate_or_default(options.fps));
}

}  // namespace millrace::io
