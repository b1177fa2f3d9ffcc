#include "io/files/whole_file.h"

#include <csignal>
#include <stdexcept>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/complaint.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using WholeFile = FolderTest;
using ClaimedFolder = FolderTest;

namespace fs = std::filesystem;

std::string error_of(const std::string& path) {
  return complaint<std::runtime_error>([&] { write_whole(path, "new"); });
}

TEST_F(WholeFile, WritesAndReplacesAndMakesFolders) {
  const std::string bytes("a\0b\nc", 5), file = folder / "a/b/file";
  write_whole(file, bytes);
  EXPECT_EQ(bytes_of(file), bytes);
  write_whole(file, "");
  EXPECT_EQ(bytes_of(file), "");
  EXPECT_EQ(entries(folder / "a/b"), 1) << "no temporary is left";
}

TEST_F(WholeFile, FollowsALinkAndReplacesNoDevice) {
  write_whole("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  put_bytes(folder / "real", "old");
  fs::create_symlink("real", folder / "link");
  write_whole(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(bytes_of(folder / "real"), "new");
  fs::create_symlink("later", folder / "dangling");
  write_whole(folder / "dangling", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "dangling"));
  EXPECT_EQ(bytes_of(folder / "later"), "new");
}

TEST_F(WholeFile, AFolderInTheWayAParentThatIsAFileAndAPipeThatNobodyReadsAreErrors) {
  fs::create_directories(folder / "way/inside");
  EXPECT_EQ(error_of(folder / "way"), folder / "way: is a folder");
  EXPECT_TRUE(fs::exists(folder / "way/inside"));
  put_bytes(folder / "file", "old");
  const std::string error = error_of(folder / "file/inside");
  EXPECT_EQ(error.find(folder / "file/inside: "), 0u) << error;
  EXPECT_EQ(bytes_of(folder / "file"), "old");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of(folder / "pipe"), folder / "pipe: is not being read");
  EXPECT_EQ(entries(folder.path()), 3) << "no temporary is left";
}

// As in an unwritable folder, but for root as well: the name is too long for a temporary beside it.
TEST_F(WholeFile, AFailedWriteKeepsTheOldFile) {
  const std::string path = folder / std::string(250, 'n');
  put_bytes(path, "old");
  const std::string error = error_of(path);
  EXPECT_EQ(error.find(path + ": "), 0u) << error;
  EXPECT_EQ(bytes_of(path), "old");
  EXPECT_EQ(entries(folder.path()), 1);
}

// A full disk, as far as a process can be made to meet one.
TEST_F(WholeFile, AWriteThatStopsHalfwayKeepsTheOldFile) {
  put_bytes(folder / "file", "old");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(write_whole(folder / "file", std::string(100, 'x')), std::runtime_error);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(bytes_of(folder / "file"), "old");
  EXPECT_EQ(entries(folder.path()), 1) << "the temporary is gone";
}

TEST_F(WholeFile, LeftoversOfKilledRunsAreRemovedAndNothingElse) {
  for (const std::string name :
       {"file.tmp.1.0", "file.tmp.4711", "file.tmp.backup", "file.tmp", "file2.tmp.1", "file.1"})
    put_bytes(folder / name, "left");
  const int other = ::open((folder / "file.tmp.77").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  write_whole(folder / "file", "new");
  EXPECT_TRUE(fs::exists(folder / "file.tmp.77")) << "somebody is writing it";
  ::close(other);
  EXPECT_FALSE(fs::exists(folder / "file.tmp.1.0"));
  EXPECT_FALSE(fs::exists(folder / "file.tmp.4711"));
  EXPECT_EQ(entries(folder.path()), 6);
}

TEST_F(WholeFile, APrivateFileStaysPrivate) {
  put_bytes(folder / "file", "old");
  fs::permissions(folder / "file", fs::perms::owner_read | fs::perms::owner_write);
  write_whole(folder / "file", "new");
  EXPECT_EQ(fs::status(folder / "file").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(WholeFile, WhatIsReplacedStaysUnderItsOtherName) {
  write_whole(folder / "file", "1", "before");
  EXPECT_FALSE(fs::exists(folder / "before"));
  write_whole(folder / "file", "2", "before");
  write_whole(folder / "file", "3", "before");
  EXPECT_EQ(bytes_of(folder / "file"), "3");
  EXPECT_EQ(bytes_of(folder / "before"), "2");
  EXPECT_EQ(entries(folder.path()), 2);
}

TEST_F(ClaimedFolder, HasOneWriter) {
  const std::string there = folder / "made/for/it";
  {
    const FolderClaim first = claim_folder(there);
    EXPECT_EQ(complaint<std::runtime_error>([&] { claim_folder(there); }),
              there + ": another run writes it");
    EXPECT_NO_THROW(claim_folder(folder / "made/for"));
    fs::remove(there);  // and made again
    EXPECT_EQ(complaint<std::runtime_error>([&] { claim_folder(there); }),
              there + ": another run writes it");
  }
  EXPECT_NO_THROW(claim_folder(there));
  EXPECT_TRUE(fs::is_empty(there));
}

}  // namespace
}  // namespace millrace::io
