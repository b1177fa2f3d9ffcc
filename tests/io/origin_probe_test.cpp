#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "io/source/source_reconnecting.h"
#include "tests/io/loopback.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds;

bool answer(const OriginProbe& probe) {
  for (;;) {
    if (const std::optional<bool> said = probe()) return *said;
    std::this_thread::sleep_for(milliseconds(10));
  }
}

TEST(OriginProbe, APortIsThereOnceSomebodyListens) {
  Port port;
  for (const std::string before : {"rtsp://", "http://user:pass%40word@"}) {
    const auto probe =
        make_origin_probe(before + "127.0.0.1:" + std::to_string(port.number) + "/path:8?a@b#c");
    ASSERT_TRUE(probe);
    if (before == "rtsp://") {
      EXPECT_FALSE(answer(probe));
      EXPECT_FALSE(answer(probe));
      port.listen();
    }
    EXPECT_TRUE(answer(probe)) << before;
  }
  EXPECT_TRUE(answer(make_origin_probe("rtsp://localhost:" + std::to_string(port.number))))
      << "of several addresses";
  EXPECT_FALSE(answer(make_origin_probe("rtsp://[::1]:1/x")));
}

TEST(OriginProbe, ADeviceIsThereOrNot) {
  const TestFolder folder;
  const auto probe = make_origin_probe("v4l2://" + folder / "video0");
  EXPECT_FALSE(answer(probe));
  put_bytes(folder / "video0", "x");
  EXPECT_TRUE(answer(probe));
}

TEST(OriginProbe, NothingToAskIsSaid) {
  EXPECT_FALSE(make_origin_probe("gst:videotestsrc"));
  EXPECT_FALSE(make_origin_probe("rtsp://no host at all/x"));
  EXPECT_TRUE(make_origin_probe("rtsp://127.0.0.1/x")) << "by its usual port";
}

}  // namespace
}  // namespace millrace::io
