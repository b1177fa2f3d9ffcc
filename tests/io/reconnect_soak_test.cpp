// A thousand breaks leave nothing behind.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "io/source/source.h"
#include "tests/io/reading.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

// AddressSanitizer keeps what was freed for a while.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

long status_of(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stol(line.substr(key.size() + 1));
  }
  return -1;
}

struct Held {
  long threads = status_of("Threads");
  long kib = status_of("VmRSS");
  long files = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
};

TEST(ReconnectSoak, ReconnectsLeaveNothingBehind) {
  SourceOptions options{.uri =
                            "gst:videotestsrc is-live=true ! video/x-raw,format=RGB,width=32,"
                            "height=32,framerate=1000/1 ! identity error-after=3"};
  options.reconnect.least = options.reconnect.most = milliseconds(0);
  const auto source = open_source(options);
  const auto health = source->health();
  const auto reconnected = [&](std::int64_t times) {
    const auto enough = [&] { return health->reconnects >= times; };
    return read_until(*source, enough, seconds(100));
  };
  ASSERT_TRUE(reconnected(100));
  const Held early;
  ASSERT_TRUE(reconnected(kSanitized ? 300 : 1000));
  const Held late;
  std::printf("after 100: %ld threads, %ld files, %ld KiB; at the end: %ld, %ld, %ld\n",
              early.threads, early.files, early.kib, late.threads, late.files, late.kib);
  EXPECT_LE(late.threads, early.threads + 2) << "GLib's pool keeps a few idle ones at times";
  EXPECT_LE(late.files, early.files);
  if (!kSanitized) {
    EXPECT_LE(late.kib, early.kib + 1024);
  }
}

}  // namespace
}  // namespace millrace::io
