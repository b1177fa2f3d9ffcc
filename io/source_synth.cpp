// synth:shapes?shapes=4&speed=1.5&frames=300: how many shapes, pixels a frame, length (0: endless).
#include <algorithm>  // std::min
#include <array>      // parameter names
#include <charconv>   // numbers in the query
#include <cstdint>    // frame numbers

#include "io/source_kinds.h"
#include "io/synth_scene.h"

namespace millrace::io {
namespace {

constexpr std::array<std::string_view, 3> kParameters = {"frames", "shapes", "speed"};
constexpr int kMaxSide = 16384;
constexpr double kMaxFrames = 1e15;
constexpr double kMaxShapes = 1000;
constexpr double kMaxSpeed = 1e4;

class SynthSource : public Source {
 public:
  SynthSource(const SceneOptions& scene, double fps, std::int64_t frames)
      : options_(scene), scene_(scene), fps_(fps), frames_(frames) {}

  SourceInfo info() const override {
    SourceInfo info;
    info.kind = "synth";
    info.caps = options_.channels == 3 ? "synthetic RGB" : "synthetic GRAY8";
    info.width = options_.width;
    info.height = options_.height;
    info.fps = fps_;
    info.duration_s = double(frames_) / fps_;
    return info;
  }

  ReadStatus read(Frame& out, std::chrono::milliseconds) override {
    if (frames_ > 0 && next_ >= frames_) return ReadStatus::end;
    out.width = options_.width;
    out.height = options_.height;
    out.channels = options_.channels;
    out.pts = std::chrono::nanoseconds(std::int64_t(double(next_) * 1e9 / fps_));
    scene_.draw(next_, out.pixels);
    ++next_;
    return ReadStatus::frame;
  }

  bool rewind() override {
    next_ = 0;
    return true;
  }

 private:
  const SceneOptions options_;
  const SynthScene scene_;
  const double fps_;
  const std::int64_t frames_;
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
                std::int64_t& frames) {
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(item.size() + 1, query.size()));
    const std::string_view name = item.substr(0, item.find('='));
    const std::string_view value = item.substr(std::min(name.size() + 1, item.size()));
    if (name == "frames") {
      frames = std::int64_t(parse_number(options, name, value, kMaxFrames));
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

}  // namespace

std::unique_ptr<Source> open_synth(const SourceOptions& options) {
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
  std::int64_t frames = 0;
  read_query(options, std::string_view(rest).substr(std::min(question + 1, rest.size())), scene,
             frames);
  return std::make_unique<SynthSource>(scene, rate_or_default(options.fps), frames);
}

}  // namespace millrace::io
