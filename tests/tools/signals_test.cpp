#include "tools/cli/commands/signals.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

namespace millrace::cli {
namespace {

TEST(Signals, TwoAtOnceAreOneAndALaterOneEndsTheProcess) {
  const auto ends = [](std::chrono::milliseconds apart) {
    catch_signals();
    std::raise(SIGINT);
    std::this_thread::sleep_for(apart);
    std::raise(SIGTERM);
    _exit(asked_to_stop() ? 0 : 1);
  };
  EXPECT_EXIT(ends({}), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(ends(std::chrono::milliseconds(600)), testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace millrace::cli
