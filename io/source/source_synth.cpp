// synth:shapes?shapes=4&speed=1.5&frames=300: number of shapes, pixels per frame, length (0:
// endless). &scenes=3&switch=100: scenes take turns of that many frames. &order=random: a scene
// lasts that many frames on average, then a random other one follows. &drift=0.4: every 500 frames
// the light falls by that share and rises again. A frame's label is its scene.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <vector>

#include "io/source/source_kinds.h"
#include "io/source/split_mix.h"
#include "io/source/synth_scene.h"
#include "io/text/nearest_name.h"

namespace millrace::io {
namespace {

constexpr int kMaxSide = 16384;
constexpr std::int64_t kDriftPeriod = 500;

struct StreamOptions {
  SceneOptions scene;       ///< scene 0; the others differ in their seeds
  std::int64_t frames = 0;  ///< 0: endless
  int scenes = 1;
  std::int64_t turn = 100;  ///< frames per scene
  bool random = false;      ///< order=random
  double drift = 0;         ///< share by which the light falls
};

class SceneOrder {
 public:
  explicit SceneOrder(const StreamOptions& stream) : stream_(stream), random_(stream.scene.seed) {}

  int next() {
    if (!stream_.random) return int(number_++ / stream_.turn % stream_.scenes);
    // Stays have geometrically distributed lengths.
    if (number_++ > 0 && stream_.scenes > 1 && random_.below(stream_.turn) == 0)
      scene_ = int((scene_ + 1 + random_.below(stream_.scenes - 1)) % stream_.scenes);
    return scene_;
  }

 private:
  StreamOptions stream_;
  Random random_;
  std::int64_t number_ = 0;
  int scene_ = 0;
};

class SynthSource : public Source {
 public:
  SynthSource(const StreamOptions& stream, double fps)
      : stream_(stream), fps_(fps), order_(stream) {
    SceneOptions scene = stream.scene;
    for (int i = 0; i < stream.scenes; ++i, ++scene.seed) scenes_.push_back(synth_scene(scene));
  }

  SourceInfo info() const override {
    return {.kind = "synth",
            .caps = stream_.scene.channels == 3 ? "synthetic RGB" : "synthetic GRAY8",
            .width = stream_.scene.width,
            .height = stream_.scene.height,
            .fps = fps_,
            .duration_s = double(stream_.frames) / fps_,
            .classes = stream_.scenes > 1 ? stream_.scenes : 0};
  }

  ReadStatus read(Frame& out, std::chrono::milliseconds) override {
    if (stream_.frames > 0 && next_ >= stream_.frames) return ReadStatus::end;
    out.reshape(stream_.scene.width, stream_.scene.height, stream_.scene.channels);
    out.pts = std::chrono::nanoseconds(std::int64_t(double(next_) * 1e9 / fps_));
    const int scene = order_.next();
    out.label = scenes_.size() > 1 ? scene : -1;
    scenes_[std::size_t(scene)](next_, out.pixels);
    dim(out.pixels);
    ++next_;
    return ReadStatus::frame;
  }

  bool rewind() override {
    next_ = 0;
    order_ = SceneOrder(stream_);
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

  const StreamOptions stream_;
  std::vector<SynthScene> scenes_;
  const double fps_;
  SceneOrder order_;
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
    {"shapes", 1000, [](StreamOptions& s, double value) { s.scene.shapes = int(value); }},
    {"speed", 1e4, [](StreamOptions& s, double value) { s.scene.speed = value; }},
    {"switch", 1e15, [](StreamOptions& s, double value) {
       s.turn = std::max<std::int64_t>(1, std::int64_t(value));
     }}};

void set_parameter(const SourceOptions& options, std::string_view name, std::string_view text,
                   StreamOptions& stream) {
  if (name == "order") {
    stream.random = text == "random";
    if (std::find(kOrders.begin(), kOrders.end(), text) != kOrders.end()) return;
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
  if (rest.substr(0, question) != "shapes") {
    throw source_error(options, "unknown synthetic stream; the one there is: synth:shapes");
  }
  StreamOptions stream;
  SceneOptions& scene = stream.scene;
  if (options.width > 0) scene.width = options.width;
  if (options.height > 0) scene.height = options.height;
  if (scene.width > kMaxSide || scene.height > kMaxSide) {
    throw source_error(options, "a side is at most " + std::to_string(kMaxSide) + " pixels");
  }
  scene.channels = options.channels;
  scene.seed = options.seed;
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
