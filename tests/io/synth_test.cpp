#include <numeric>

#include "io/source/source.h"
#include "tests/io/reading.h"

namespace millrace::io {
namespace {

std::unique_ptr<Source> open(const std::string& uri, std::uint64_t seed = 0, int width = 0,
                             int height = 0, int channels = 3) {
  return open_source(
      {.uri = uri, .width = width, .height = height, .channels = channels, .seed = seed});
}

Frame next(Source& source) {
  Frame frame;
  EXPECT_EQ(source.read(frame, std::chrono::milliseconds(0)), ReadStatus::frame);
  return frame;
}

Frame frame_number(Source& source, int number) {
  for (int n = 0; n < number; ++n) next(source);
  return next(source);
}

// FNV-1a.
std::uint64_t hash(const Frame& frame) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : frame.pixels) value = (value ^ byte) * 0x100000001b3u;
  return value;
}

TEST(Synth, BytesArePinned) {
  const auto rgb = open("synth:shapes");
  EXPECT_EQ(hash(frame_number(*rgb, 0)), 7156630623783711388u);
  EXPECT_EQ(hash(frame_number(*rgb, 99)), 3221864683574164154u) << "frame 100";
  const auto grey = open("synth:shapes?shapes=7&speed=2.5", 42, 96, 48, 1);
  EXPECT_EQ(hash(frame_number(*grey, 0)), 8658427481647910422u);
  EXPECT_EQ(hash(frame_number(*grey, 99)), 10867379577394382321u) << "frame 100";
}

TEST(Synth, SeedsDifferAndRewindRepeats) {
  const auto source = open("synth:shapes", 1);
  const Frame first = next(*source);
  const Frame second = next(*source);
  EXPECT_NE(first.pixels, second.pixels);
  EXPECT_TRUE(source->rewind());
  EXPECT_EQ(next(*source).pixels, first.pixels);
  EXPECT_EQ(next(*source).pixels, second.pixels);
  EXPECT_NE(next(*open("synth:shapes", 2)).pixels, first.pixels);
}

TEST(Synth, SurvivesAnySize) {
  for (const auto& [width, height] : {std::pair{1, 1}, {2, 300}, {300, 3}, {7, 7}}) {
    const auto source = open("synth:shapes?shapes=9&speed=33.3", 5, width, height);
    EXPECT_EQ(frame_number(*source, 50).pixels.size(), std::size_t(width) * height * 3);
  }
}

TEST(Synth, RefusesWhatItDoesNotKnow) {
  for (const auto& [what, part] : {std::pair("shape", "synth:shapes"),
                                   {"shapes?frame=3", "\"frames\""},
                                   {"shapes?speed=fast", "speed must be a number"},
                                   {"shapes?speed=nan", "speed must be a number"},
                                   {"shapes?shapes=-1", "shapes must be a number"},
                                   {"shapes?frames=", "frames must be a number"},
                                   {"shapes?order=randm", "\"random\""}})
    expect_refused(std::string("synth:") + what, part);
}

TEST(Synth, ScenesTakeTurnsAndComeBack) {
  const auto frames = [](const std::string& query, int count) {
    const auto source = open("synth:shapes?" + query, 0, 16, 12);
    std::vector<std::vector<std::uint8_t>> all;
    while (int(all.size()) < count) all.push_back(next(*source).pixels);
    return all;
  };
  const auto plain = frames("", 9), turns = frames("scenes=2&switch=3", 9);
  for (const int same : {0, 1, 2, 6, 7, 8}) EXPECT_EQ(turns[same], plain[same]) << same;
  for (const int other : {3, 4, 5}) EXPECT_NE(turns[other], plain[other]) << other;
}

TEST(Synth, ScenesInRandomOrderStayAWhileAndComeBack) {
  constexpr int kFrames = 4000, kScenes = 4;
  const auto source = open("synth:shapes?scenes=4&switch=5&order=random&shapes=0", 7, 8, 8);
  std::vector<int> labels, seen(kScenes, 0), after(kScenes * kScenes, 0);
  for (int i = 0; i < kFrames; ++i) labels.push_back(next(*source).label);
  int switches = 0;
  for (int i = 0; i < kFrames; ++i) {
    ++seen[labels[i]];
    if (i == 0 || labels[i] == labels[i - 1]) continue;
    ++switches;
    ++after[kScenes * labels[i - 1] + labels[i]];
  }
  EXPECT_NEAR(double(kFrames) / switches, 5, 0.5);
  for (int scene = 0; scene < kScenes; ++scene) {
    EXPECT_NEAR(double(seen[scene]) / kFrames, 1.0 / kScenes, 0.08);
    for (int next = 0; next < kScenes; ++next)
      EXPECT_EQ(after[kScenes * scene + next] > switches / 24, next != scene);
  }
  // What a learner meets of them does not depend on which frames it drops.
  std::vector<int> every_other(kScenes, 0);
  for (int i = 0; i < kFrames; i += 2) ++every_other[labels[i]];
  for (int scene = 0; scene < kScenes; ++scene)
    EXPECT_NEAR(2.0 * every_other[scene] / seen[scene], 1, 0.1);
  source->rewind();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(next(*source).label, labels[i]);
  const auto other = open("synth:shapes?scenes=4&switch=5&order=random&shapes=0", 8, 8, 8);
  std::vector<int> others;
  for (int i = 0; i < kFrames; ++i) others.push_back(next(*other).label);
  EXPECT_NE(others, labels);
}

TEST(Synth, LightDriftsAndReturns) {
  const auto source = open("synth:shapes?shapes=0&drift=0.5", 0, 16, 12);
  std::vector<double> light;
  for (int i = 0; i < 501; ++i) {
    const Frame frame = next(*source);
    light.push_back(std::accumulate(frame.pixels.begin(), frame.pixels.end(), 0.0));
  }
  EXPECT_EQ(light[0], light[500]);
  EXPECT_NEAR(light[250] / light[0], 0.5, 0.02);
}

}  // namespace
}  // namespace millrace::io
