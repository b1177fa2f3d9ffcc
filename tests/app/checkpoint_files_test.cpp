#include "tools/app/checkpoint_files.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "stages/safetensors.h"
#include "tests/io/test_folder.h"

namespace millrace::app {
namespace {

namespace fs = std::filesystem;
using io::bytes_of, io::put_bytes;

stages::StateDict state_of(float value) {
  return {{"0.weight", at::full({3, 2}, value)},
          {"optimizer.mean.0.weight", at::full({3, 2}, -value)}};
}

float value_of(const stages::StateDict& state) {
  return state.at(0).second.flatten()[0].item<float>();
}

class CheckpointFolder : public io::FolderTest {
 protected:
  const std::string newest = folder / CheckpointFiles::kNewest;
  const std::string previous = folder / CheckpointFiles::kPrevious;
  CheckpointFiles files{folder.path()};
};

TEST_F(CheckpointFolder, TheLastTwoAreKeptAndNoMore) {
  EXPECT_FALSE(files.any());
  for (const float value : {1.0f, 2.0f, 3.0f, 4.0f}) files.write(state_of(value));
  EXPECT_EQ(value_of(files.read().state), 4);
  EXPECT_EQ(files.read().note, "");
  EXPECT_EQ(value_of(read_checked(previous)), 3);
  EXPECT_EQ(io::entries(folder.path()), 2);
}

TEST_F(CheckpointFolder, AnyDamageIsNoticedAndTheOneBeforeTakesOver) {
  files.write(state_of(1));
  files.write(state_of(2));
  const std::string good = bytes_of(newest);
  int unnoticed = 0;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string damaged = good;
    damaged[bit / 8] = char(damaged[bit / 8] ^ (1 << bit % 8));
    put_bytes(newest, damaged);
    const Resumed loaded = files.read();
    const bool noticed = !loaded.note.empty() && value_of(loaded.state) == 1;
    // If the name of the hash is damaged, the file has no hash, and its tensors are intact.
    const bool name_of_hash = damaged.find("xxh3_128") == damaged.npos;
    EXPECT_TRUE(noticed || (name_of_hash && value_of(loaded.state) == 2)) << "bit " << bit;
    unnoticed += noticed ? 0 : 1;
  }
  EXPECT_LE(unnoticed, 8 * 10) << "more than the name of the hash";
  for (const std::size_t length :
       {std::size_t(0), std::size_t(7), good.size() / 2, good.size() - 1}) {
    put_bytes(newest, good.substr(0, length));
    const Resumed loaded = files.read();
    EXPECT_EQ(value_of(loaded.state), 1);
    EXPECT_EQ(loaded.note.find(newest + ": "), 0u) << loaded.note;
    EXPECT_NE(loaded.note.find(CheckpointFiles::kPrevious), std::string::npos) << loaded.note;
  }
}

TEST_F(CheckpointFolder, ADamagedOneNeverTakesTheGoodOnesPlace) {
  CheckpointFiles(folder.path()).write(state_of(1));
  CheckpointFiles(folder.path()).write(state_of(2));
  put_bytes(newest, "damaged");
  CheckpointFiles(folder.path()).write(state_of(3));
  EXPECT_EQ(value_of(read_checked(newest)), 3);
  EXPECT_EQ(value_of(read_checked(previous)), 1);
}

TEST_F(CheckpointFolder, NumbersThatAreNotFiniteAreNeitherWrittenNorLearnedFrom) {
  files.write(state_of(1));
  for (const float bad : {NAN, INFINITY}) {
    EXPECT_THROW(files.write(state_of(bad)), std::runtime_error);
    EXPECT_EQ(value_of(files.read().state), 1);
    put_bytes(folder / "bad", stages::to_safetensors(state_of(bad)));
    EXPECT_THROW(read_checked(folder / "bad"), stages::WeightsError);
  }
  EXPECT_FALSE(fs::exists(previous));
}

TEST_F(CheckpointFolder, ACountThatNoRunReachesIsNone) {
  for (const char* const count : {"9223372036854775807", "-5", "many"}) {
    files.write(state_of(1), {{"frames", count}});
    EXPECT_EQ(files.read().frames, 0) << count;
  }
  files.write(state_of(1), {{"frames", "12"}});
  EXPECT_EQ(files.read().frames, 12);
  put_bytes(newest, stages::to_safetensors(state_of(5)));
  EXPECT_EQ(value_of(files.read().state), 5) << "one without a hash is read";
}

// A run killed between its two renames leaves one file under both names.
TEST_F(CheckpointFolder, TwoNamesForOneFileLeaveNothingBehind) {
  files.write(state_of(1));
  fs::create_hard_link(newest, previous);
  files.write(state_of(2));
  EXPECT_EQ(value_of(read_checked(previous)), 1);
  EXPECT_EQ(value_of(read_checked(newest)), 2);
  EXPECT_EQ(io::entries(folder.path()), 2);
}

}  // namespace
}  // namespace millrace::app
