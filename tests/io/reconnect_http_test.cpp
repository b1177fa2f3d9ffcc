// A web camera that breaks off and freezes.
#include <functional>
#include <tuple>

#include <gtest/gtest.h>

#include "io/source/source.h"
#include "io/source/stream_health.h"
#include "tests/io/web_camera.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit(30);

milliseconds read_until(Source& source, const std::function<bool(bool came)>& enough) {
  Frame frame;
  const Clock::time_point start = Clock::now();
  for (bool came = false; !enough(came);) {
    if (Clock::now() > start + kLimit) break;
    came = source.read(frame, milliseconds(20)) == ReadStatus::frame;
  }
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

TEST(ReconnectHttp, AWebCameraIsLiveAndComeBackTo) {
  WebCamera camera;
  const auto source = open_source({.uri = camera.uri()});
  const auto health = source->health();
  EXPECT_TRUE(source->info().live);
  EXPECT_EQ(source->info().width, 64);
  int frames = 0;
  const auto ten_more = [&](bool came) { return (frames += came) >= 10; };
  read_until(*source, ten_more);

  camera.hang_up = true;
  EXPECT_LT(read_until(*source, [&](bool) { return !health->connected; }), kLimit);
  EXPECT_LT(read_until(*source, [&](bool) { return health->reconnects == 1; }), kLimit);
  frames = 0;
  read_until(*source, ten_more);

  camera.frozen = true;
  EXPECT_LT(read_until(*source, [&](bool) { return !health->connected; }), kLimit);
  EXPECT_EQ(health->last_error(), "no picture for 2.5 s");
  read_until(*source, [&](bool) { return health->attempts == 2; });
  camera.hang_up = true;  // on the viewer that has left
  camera.frozen = false;
  EXPECT_LT(read_until(*source, [&](bool) { return health->reconnects == 2; }), kLimit);
  EXPECT_GT(health->lost_upstream, 0);
}

// Both would take gigabytes.
TEST(ReconnectHttp, APictureThatWouldFillTheMemoryIsABreak) {
  std::string bomb("\xff\xd8\xff\xe0\0\4ab\xff\xc0\0\x0b\x08\x3e\x80\x3e\x80\1\1\x11\0", 23);
  const std::string endless("\xff\xd8" + std::string(2 << 20, 'x'));
  for (const auto& [bytes, length, why] :
       {std::tuple(bomb, bomb.size(), "a picture of 16000x16000 has more pixels"),
        std::tuple(endless, std::size_t(2'000'000'000), "a picture has more bytes")}) {
    WebCamera camera;
    const auto source = open_source({.uri = camera.uri(), .max_pixels = 64 * 48});
    int frames = 0;
    const auto ten_more = [&](bool came) { return (frames += came) >= 10; };
    read_until(*source, ten_more);
    camera.send_once(bytes, length);
    const auto health = source->health();
    EXPECT_LT(read_until(*source, [&](bool) { return health->breaks > 0; }), kLimit);
    EXPECT_NE(health->last_error().find(why), std::string::npos) << health->last_error();
    EXPECT_LT(read_until(*source, [&](bool) { return health->reconnects == 1; }), kLimit);
    frames = 0;
    EXPECT_LT(read_until(*source, ten_more), kLimit) << "it goes on";
  }
}

}  // namespace
}  // namespace millrace::io
