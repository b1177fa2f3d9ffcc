// Replays the seeds of the fuzz targets and earlier findings.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/fuzz/targets.h"
#include "tests/io/test_folder.h"

namespace millrace::fuzz {
namespace {

TEST(Seeds, AreReplayedAlsoCutShortAndWithAByteChanged) {
  for (const auto& [name, run] : targets()) {
    int seeds = 0;
    for (const auto& entry : std::filesystem::directory_iterator(MILLRACE_SEEDS + ("/" + name))) {
      const std::string seed = io::bytes_of(entry.path().string());
      run(seed);
      const std::size_t step = std::max<std::size_t>(1, seed.size() / 16);
      for (std::size_t at = 0; at < seed.size(); at += step) {
        run(seed.substr(0, at));
        std::string changed = seed;
        changed[at] = char(changed[at] ^ 0x21);
        run(changed);
      }
      ++seeds;
    }
    EXPECT_GT(seeds, 0) << name;
  }
}

}  // namespace
}  // namespace millrace::fuzz
