// synth:shapes?shapes=4&speed=1.5&frames=300: number of shapes, pixels a frame, length (0:
// endless). &scenes=3&switch=100: scenes take turns, each for so many frames. &order=random: a
// scene lasts so many frames on average, and a random other one follows. &drift=0.4: every 500
// frames the light falls by that share and rises again. A frame's label is its scene.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#include "io/source/source_kinds.h"
#include "io/source/split_mix.h"
#include "io/source/synth_scene.h"
#include "io/text/nearest_name.h"

namespace millrace::io {
namespace {

constexpr std::array<std::string_view, 7> kParameters = {"drift",  "frames", "order", "scenes",
                                                         "shapes", "speed",  "switch"};
constexpr std::array<std::string_view, 2> kOrders = {"turns", "random"};
constexpr int kMaxSide = 16384;
constexpr double kMaxFrames = 1e15;
constexpr double kMaxShapes = 1000;
constexpr double kMaxSpeed = 1e4;
constexpr double kMaxScenes = 100;
constexpr std::int64_t kDriftPeriod = 500;

/// The stream's parameters other than the scenes'.
struct StreamOptions {
  std::int64_t frames = 0;  ///< 0: endless
  int scenes = 1;
  std::int64_t turn = 100;  ///< frames a scene lasts
  bool random = false;      ///< on average, followed by a random other scene
  double drift = 0;         ///< share by which the light falls
};

/// Which scene each frame shows.
class SceneOrder {
 public:
  SceneOrder(const StreamOptions& stream, std::uint64_t seed)
      : stream_(stream), seed_(seed), random_(seed) {}

  /// Of the next frame.
  int next() {
    if (!stream_.random) return int(number_++ / stream_.turn % stream_.scenes);
    // The length of a stay is geometrically distributed.
    if (number_++ > 0 && stream_.scenes > 1 && random_.below(stream_.turn) == 0)
      scene_ = int((scene_ + 1 + random_.below(stream_.scenes - 1)) % stream_.scenes);
    return scene_;
  }
  void rewind() { *this = SceneOrder(stream_, seed_); }

 private:
  StreamOptions stream_;
  std::uint64_t seed_;
  Random random_;
  std::int64_t number_ = 0;
  int scene_ = 0;
};

class SynthSource : public Source {
 public:
  SynthSource(const SceneOptions& scene, const StreamOptions& stream, double fps)
      : options_(scene), stream_(stream), fps_(fps), order_(stream, scene.seed) {
    for (int i = 0; i < stream.scenes; ++i) {
      SceneOptions one = scene;
      one.seed += std::uint64_t(i);
      scenes_.push_back(std::make_unique<SynthScene>(one));
    }
  }

  SourceInfo info() const override {
    SourceInfo info;
    info.kind = "synth";
    info.caps = options_.channels == 3 ? "synthetic RGB" : "synthetic GRAY8";
    info.width = options_.width;
    info.height = options_.height;
    info.fps = fps_;
    info.classes = stream_.scenes > 1 ? stream_.scenes : 0;
    info.duration_s = double(stream_.frames) / fps_;
    return info;
  }

  ReadStatus read(Frame& out, std::chrono::milliseconds) override {
    if (stream_.frames > 0 && next_ >= stream_.frames) return ReadStatus::end;
    out.reshape(options_.width, options_.height, options_.channels);
    out.pts = std::chrono::nanoseconds(std::int64_t(double(next_) * 1e9 / fps_));
    const int scene = order_.next();
    out.label = scenes_.size() > 1 ? scene : -1;
    scenes_[std::size_t(scene)]->draw(next_, out.pixels);
    dim(out.pixels);
    ++next_;
    return ReadStatus::frame;
  }

  bool rewind() override {
    next_ = 0;
    order_.rewind();
    return true;
  }

 private:
  /// In 256ths, so that the bytes are the same on every machine.
  void dim(std::vector<std::uint8_t>& pixels) const {
    const std::int64_t phase = next_ % kDriftPeriod, half = kDriftPeriod / 2;
    const std::int64_t way = phase < half ? phase : kDriftPeriod - phase;
    const auto light = int(256 - std::int64_t(stream_.drift * 256) * way / half);
    if (light == 256) return;
    for (std::uint8_t& pixel : pixels) pixel = std::uint8_t(pixel * light / 256);
  }

  const SceneOptions options_;
  const StreamOptions stream_;
  std::vector<std::unique_ptr<const SynthScene>> scenes_;
  const double fps_;
  SceneOrder order_;
  std::int64_t next_ = 0;
};

double parse_number(const SourceOptions& options, std::string_view name, std::string_view text,
                    double most) {
  double value = -1.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !(value >= 0.0 && value <= most)) {
    throw source_error(options, std::string(name) + " must be a number from 0 to " +
                                    std::to_string(std::int64_t(most)));
  }
  return value;
}

void read_query(const SourceOptions& options, std::string_view query, SceneOptions& scene,
                StreamOptions& stream) {
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(item.size() + 1, query.size()));
    const std::string_view name = item.substr(0, item.find('='));
    const std::string_view value = item.substr(std::min(name.size() + 1, item.size()));
    if (name == "frames") {
      stream.frames = std::int64_t(parse_number(options, name, value, kMaxFrames));
    } else if (name == "scenes") {
      stream.scenes = std::max(1, int(parse_number(options, name, value, kMaxScenes)));
    } else if (name == "switch") {
      stream.turn =
          std::max<std::int64_t>(1, std::int64_t(parse_number(options, name, value, kMaxFrames)));
    } else if (name == "order") {
      if (std::find(kOrders.begin(), kOrders.end(), value) == kOrders.end()) {
        throw source_error(options, "order is \"" + std::string(value) + "\"; the nearest known " +
                                        "one is \"" + nearest_name(value, kOrders) + "\"");
      }
      stream.random = value == "random";
    } else if (name == "drift") {
      stream.drift = parse_number(options, name, value, 1.0);
    } else if (name == "shapes") {
      scene.shapes = int(parse_number(options, name, value, kMaxShapes));
    } else if (name == "speed") {
      scene.speed = parse_number(options, name, value, kMaxSpeed);
    } else {
      throw source_error(options, "unknown parameter \"" + std::string(name) +
                                      "\"; the nearest known one is \"" +
                                      nearest_name(name, kParameters) + "\"");
    }
  }
}

/// What the URI asks for. Throws SourceError.
std::pair<SceneOptions, StreamOptions> asked_of(const SourceOptions& options) {
  const std::string rest = split_uri(options.uri).rest;
  const std::size_t question = std::min(rest.find('?'), rest.size());
  if (rest.substr(0, question) != "shapes") {
    throw source_error(options, "unknown synthetic stream; the one there is: synth:shapes");
  }
  SceneOptions scene;
  if (options.width > 0) scene.width = options.width;
  if (options.height > 0) scene.height = options.height;
  if (scene.width > kMaxSide || scene.height > kMaxSide) {
    throw source_error(options, "a side is at most " + std::to_string(kMaxSide) + " pixels");
  }
  scene.channels = options.channels;
  scene.seed = options.seed;
  StreamOptions stream;
  read_query(options, std::string_view(rest).substr(std::min(question + 1, rest.size())), scene,
             stream);
  return {scene, stream};
}

}  // namespace

void check_synth(const SourceOptions& options) {
  asked_of(options);
}

std::unique_ptr<Source> open_synth(const SourceOptions& options) {
  const auto [scene, stream] = asked_of(options);
  return std::make_unique<SynthSource>(scene, stream, rate_or_default(options.fps));
}

}  // namespace millrace::io
