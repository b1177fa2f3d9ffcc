#include "engine/trainer/device.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace millrace::engine {
namespace {

std::vector<std::string> names(const std::vector<Device>& devices) {
  std::vector<std::string> list;
  for (const Device& device : devices) list.push_back(device.name());
  return list;
}
using Names = std::vector<std::string>;

TEST(Devices, AreHandedOutInTurn) {
  EXPECT_EQ(names(place_stages({"auto"}, 3, 2, 0)), (Names{"cpu:0", "cpu:1", "cpu:0"}));
  EXPECT_EQ(names(place_stages({"auto"}, 3, 2, 2)), (Names{"cuda:0", "cuda:1", "cuda:0"}));
  EXPECT_EQ(names(place_stages({"cpu"}, 2, 2, 2)), (Names{"cpu:0", "cpu:1"}));
  EXPECT_EQ(names(place_stages({"cpu:1", "cuda:0"}, 2, 2, 1)), (Names{"cpu:1", "cuda:0"}));
}

TEST(Devices, RefuseWhatIsNotThere) {
  for (const char* device : {"cuda", "cpu:2", "tpu:0", "cpu:x", "cpu:-1"})
    EXPECT_THROW(place_stages({device}, 1, 2, 0), std::invalid_argument) << device;
  EXPECT_THROW(place_stages({"cpu:0"}, 2, 2, 0), std::invalid_argument);
}

TEST(Devices, LeaveCoresToAStagesThreads) {
  std::vector<int> cores;
  for (const Device& device : place_stages({"cpu"}, 4, 6, 0, {2, 1, 3, 1}))
    cores.push_back(device.index);
  EXPECT_EQ(cores, (std::vector<int>{0, 2, 3, 0})) << "round again where there are too few";
}

}  // namespace
}  // namespace millrace::engine
