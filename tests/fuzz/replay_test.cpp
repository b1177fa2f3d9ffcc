// Replays the seeds of the fuzz targets and earlier findings.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "tests/fuzz/targets.h"
#include "tests/io/test_folder.h"

namespace millrace::fuzz {
namespace {

void replay(const std::string& name, void (*target)(const std::string&)) {
  int seeds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MILLRACE_SEEDS + ("/" + name))) {
    const std::string seed = io::bytes_of(entry.path().string());
    target(seed);
    // Also cut short, and with a byte changed, at 16 places.
    const std::size_t step = std::max<std::size_t>(1, seed.size() / 16);
    for (std::size_t at = 0; at < seed.size(); at += step) {
      target(seed.substr(0, at));
      std::string changed = seed;
      changed[at] = char(changed[at] ^ 0x21);
      target(changed);
    }
    ++seeds;
  }
  EXPECT_GT(seeds, 0) << name;
}

#define MILLRACE_REPLAY(name)   \
  TEST(Seeds, name) {           \
    replay(#name, fuzz_##name); \
  }
MILLRACE_TARGETS(MILLRACE_REPLAY)

}  // namespace
}  // namespace millrace::fuzz
