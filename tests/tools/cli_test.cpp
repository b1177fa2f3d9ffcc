#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "tests/io/test_folder.h"
#include "tools/cli/commands/signals.h"
#include "tools/cli/compare/compare.h"

namespace millrace::cli {
namespace {

using Compare = io::FolderTest;

TEST_F(Compare, CurvesLeaveOutWhatIsNoFramesLine) {
  io::put_bytes(folder / "log",
                "{\"frame\": 0, \"loss\": 0.5, \"mean_frame_loss\": 0.25}\n"
                "{\"resumed\": 1}\n{\"frame\": 1, \"loss\": null}\n{\"frame\": 2, \"lo");
  const LossCurves curves = read_curves(folder / "log");
  EXPECT_EQ(curves.network, (std::vector<std::pair<double, double>>{{0, 0.5}}));
  EXPECT_EQ(curves.mean_frame, (std::vector<std::pair<double, double>>{{0, 0.25}}));
  EXPECT_THROW(read_curves(folder / "none"), std::invalid_argument);
}

TEST_F(Compare, LongCurvesAreThinnedByTheirMeans) {
  std::string text;
  for (int n = 0; n < 8000; ++n)
    text += "{\"frame\":" + std::to_string(n) + ",\"loss\":" + std::to_string(n % 2) + "}\n";
  io::put_bytes(folder / "log", text);
  const LossCurves curves = read_curves(folder / "log");
  ASSERT_EQ(curves.network.size(), 4000u);
  for (const auto& [frame, loss] : curves.network) EXPECT_EQ(loss, 0.5);
  const io::Chart chart = compare_chart({{"a", curves}, {"b", curves}});
  EXPECT_EQ(chart.series.size(), 2u);
}

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
