// systemd's socket is replaced by the test's own.
#include "tools/cli/commands/watchdog.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace millrace::cli {
namespace {

using namespace std::chrono_literals;

class WatchdogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::snprintf(name_.sun_path, sizeof name_.sun_path, "%s/notify-%d", testing::TempDir().c_str(),
                  int(getpid()));
    unlink(name_.sun_path);
    socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ASSERT_GE(socket_, 0);
    ASSERT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&name_), sizeof name_), 0);
    setenv("NOTIFY_SOCKET", name_.sun_path, 1);
    setenv("WATCHDOG_USEC", "1000000", 1);
  }
  void TearDown() override {
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    close(socket_);
    unlink(name_.sun_path);
  }

  /// The next word sent; "" if there is none.
  std::string heard() {
    char text[512];
    const ssize_t size = recv(socket_, text, sizeof text, 0);
    return size < 0 ? "" : std::string(text, std::size_t(size));
  }

  sockaddr_un name_{AF_UNIX, {}};
  int socket_ = -1;
  Watchdog::Clock::time_point now_ = Watchdog::Clock::now();
};

TEST_F(WatchdogTest, SpeaksOnlyWhenMoreFramesWereTrained) {
  Watchdog watchdog;
  const auto look = [&](std::int64_t frames, const char* status, int second, bool paused = false) {
    watchdog.look(
        frames, paused, [=] { return status; }, now_ + second * 1s);
  };
  look(0, "", 0);
  EXPECT_EQ(heard(), "") << "nothing trained yet";
  look(1, "frame 1\nREADY=1", 0);
  EXPECT_EQ(heard(), "WATCHDOG=1\nSTATUS=frame 1 READY=1") << "a status is one line";
  for (int second = 1; second < 60; ++second) look(1, "", second);
  EXPECT_EQ(heard(), "") << "the main thread lives, but nothing is learned";
  look(2, "", 60);
  EXPECT_TRUE(heard().starts_with("WATCHDOG=1\n"));
  for (int second = 61; second < 120; ++second) {
    look(2, "paused on demand", second, true);
    EXPECT_EQ(heard(), "WATCHDOG=1\nSTATUS=paused on demand") << "a run at rest on demand is alive";
  }
}

TEST_F(WatchdogTest, SpeaksFourTimesInTheTimeAllowedAndOnceASecondWithoutALimit) {
  for (const int expected : {40, 10}) {
    Watchdog watchdog;
    int words = 0;
    for (int tick = 0; tick < 200; ++tick) {  // 50 ms each: 10 s
      watchdog.look(
          1 + tick, false, [] { return ""; }, now_ + tick * 50ms);
      if (!heard().empty()) ++words;
    }
    EXPECT_EQ(words, expected);
    unsetenv("WATCHDOG_USEC");
  }
}

}  // namespace
}  // namespace millrace::cli
