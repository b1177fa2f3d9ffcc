// A web camera that breaks off and freezes.
#include <functional>
#include <tuple>

#include <gtest/gtest.h>

#include "io/source/source.h"
#include "tests/io/reading.h"
#include "tests/io/web_camera.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ReconnectHttp, AWebCameraIsLiveAndComeBackTo) {
  WebCamera camera;
  const auto source = open_source({.uri = camera.uri()});
  const auto health = source->health();
  EXPECT_TRUE(source->info().live);
  EXPECT_EQ(source->info().width, 64);
  const auto becomes = [&](const std::function<bool()>& what) { return read_until(*source, what); };
  EXPECT_TRUE(becomes([&] { return health->frames_since >= 10; }));

  camera.hang_up = true;
  EXPECT_TRUE(becomes([&] { return !health->connected; }));
  EXPECT_TRUE(becomes([&] { return health->reconnects == 1 && health->frames_since >= 10; }));

  camera.frozen = true;
  EXPECT_TRUE(becomes([&] { return !health->connected; }));
  EXPECT_EQ(health->last_error(), "no picture for 2.5 s");
  EXPECT_TRUE(becomes([&] { return health->attempts == 2; }));
  camera.hang_up = true;  // on the viewer that has left
  camera.frozen = false;
  EXPECT_TRUE(becomes([&] { return health->reconnects == 2; }));
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
    const auto health = source->health();
    EXPECT_TRUE(read_until(*source, [&] { return health->frames_since >= 10; }));
    camera.send_once(bytes, length);
    EXPECT_TRUE(read_until(*source, [&] { return health->breaks > 0; }));
    EXPECT_NE(health->last_error().find(why), std::string::npos) << health->last_error();
    EXPECT_TRUE(
        read_until(*source, [&] { return health->reconnects == 1 && health->frames_since >= 10; }));
  }
}

}  // namespace
}  // namespace millrace::io
