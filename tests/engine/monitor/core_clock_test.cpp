#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "engine/monitor/overload.h"
#include "tests/io/test_folder.h"

namespace millrace::engine {
namespace {

/// A /sys of a board whose cores run at `now` of `most` kHz.
struct Board {
  const io::TestFolder folder;
  const std::filesystem::path sys = folder.path();
  void put(const std::string& file, int number) const {
    std::filesystem::create_directories((sys / file).parent_path());
    std::ofstream(sys / file) << number << "\n";
  }
  void core(int index, int now, int most) const {
    const std::string folder = "devices/system/cpu/cpu" + std::to_string(index) + "/cpufreq/";
    put(folder + "scaling_cur_freq", now);
    put(folder + "cpuinfo_max_freq", most);
  }
};

TEST(CoreClock, IsSlowWhenTheFastestCoreIs) {
  const Board board;
  board.core(0, 600000, 2400000);
  board.core(1, 1500000, 2400000);
  EXPECT_EQ(slow_clock(board.sys), "cores run at 1500 of 2400 MHz");
  board.put("class/thermal/thermal_zone0/temp", 61000);
  board.put("class/thermal/thermal_zone1/temp", 84200);
  EXPECT_EQ(slow_clock(board.sys), "cores run at 1500 of 2400 MHz, 84 C");
}

TEST(CoreClock, IsNotSlowWhileOneCoreRunsAtItsMost) {
  const Board board;
  board.core(0, 600000, 2400000);
  board.core(1, 1800000, 1800000);  // a little one
  EXPECT_EQ(slow_clock(board.sys), "");
}

TEST(CoreClock, SaysNothingWhereLinuxDoesNot) {
  const Board board;
  EXPECT_EQ(slow_clock(board.sys), "");
  board.put("devices/system/cpu/cpu0/online", 1);
  EXPECT_EQ(slow_clock(board.sys), "");
}

}  // namespace
}  // namespace millrace::engine
