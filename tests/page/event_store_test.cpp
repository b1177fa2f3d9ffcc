#include "tools/page/event_store.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "io/files/whole_file.h"
#include "io/plot/plot.h"
#include "tests/io/test_folder.h"

namespace millrace::page {
namespace {

constexpr char kFirst[] = "20260102T030405Z-event-7-frame-1234.png";
constexpr char kSecond[] = "20260102T040000Z-event-1-frame-99.png";

struct Snapshots : io::FolderTest {
  void put(const std::string& name, const std::string& bytes = "picture") {
    io::write_whole(folder / name, bytes);
  }
  Json listed(EventStore& store) {
    store.refresh();
    return store.list();
  }
};

TEST_F(Snapshots, OfEarlierRunsAreListedAndTheirNamesSayWhatTheyCan) {
  put(kFirst);
  put("loss.png");
  put("seen.json", "[]");
  EventStore store(folder.path());
  const Json one = listed(store).at(0);
  EXPECT_EQ(one["event"], 7);
  EXPECT_EQ(one["frame"], 1234);
  EXPECT_EQ(one["time"], 1767323045);
  EXPECT_EQ(one["picture"], std::string("/events/") + kFirst);
  EXPECT_EQ(one["this_run"], false);
  EXPECT_EQ(store.number_in_this_run(kFirst), -1) << "its detector is gone";
  EXPECT_EQ(store.picture(kFirst), "picture");

  put("20260102T040000Z-event-1-frame-99.json",
      R"({"reason": "local", "time": 1767326400.5, "event": "x"})");
  put(kSecond);
  const Json two = listed(store);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0]["reason"], "local") << "the newest first";
  EXPECT_EQ(two[0]["time"], 1767326400.5);
  EXPECT_EQ(two[0]["event"], 1);
  EXPECT_EQ(store.number_in_this_run(kSecond), 1);
}

TEST_F(Snapshots, TheirFrameIsFoundInTheStrip) {
  io::Frame frame;
  frame.reshape(64, 48, 3);
  const io::Panel panel{.picture = frame};
  io::write_strip("Unexpected", {panel, panel, panel}, folder / kFirst);
  EventStore store(folder.path());
  EXPECT_EQ(listed(store)[0]["crop"], Json({28, 86, 320, 240})) << "five times as large";
}

TEST_F(Snapshots, MarksSurviveARestart) {
  put(kFirst);
  put(kSecond);
  {
    EventStore store(folder.path());
    store.refresh();
    EXPECT_EQ(store.summary(), Json({{"count", 2}, {"unseen", 2}, {"revision", 1}}));
    EXPECT_TRUE(store.mark(kFirst, "normal"));
    EXPECT_FALSE(store.mark("nothing.png", "seen"));
    EXPECT_EQ(store.summary()["unseen"], 1);
  }
  put("20260102T030405Z-event-7-frame-1234.json",
      R"({"box": [4, 8, 16, 12], "size": [128, 96], "source": "a.mp4"})");
  EventStore store(folder.path());
  EXPECT_EQ(store.normal_places("a.mp4", 128, 96), (std::vector{std::array{4, 8, 16, 12}}));
  EXPECT_TRUE(store.normal_places("b.mp4", 128, 96).empty()) << "of another camera";
  EXPECT_TRUE(store.normal_places("a.mp4", 64, 48).empty()) << "of pictures of another size";
  EXPECT_EQ(listed(store)[1]["mark"], "normal");
  EXPECT_EQ(listed(store)[0]["mark"], nullptr);
  EXPECT_TRUE(store.mark("", "seen"));
  EXPECT_EQ(listed(store)[0]["mark"], "seen");
  EXPECT_EQ(listed(store)[1]["mark"], "normal") << "the rest was marked, not this one";
  std::filesystem::remove(folder / kFirst);
  EXPECT_EQ(listed(store).size(), 1u);
}

TEST_F(Snapshots, DamagedFilesHideNoPicture) {
  put(kFirst);
  put("20260102T030405Z-event-7-frame-1234.json", "{\"event\": ");
  put("seen.json", R"({")" + std::string(kFirst) + R"(": 5})");
  EventStore store(folder.path());
  EXPECT_EQ(listed(store)[0]["event"], 7);
  EXPECT_EQ(listed(store)[0]["mark"], nullptr);
  EventStore none(folder / "missing");
  EXPECT_EQ(listed(none), Json::array());
}

TEST(EventStore, InMemoryKeepsTheLatest) {
  EventStore store("");
  for (int i = 1; i <= 25; ++i)
    store.add({{"event", i}, {"frame", 10 * i}}, "png " + std::to_string(i));
  const Json all = store.list();
  ASSERT_EQ(all.size(), EventStore::kInMemory);
  EXPECT_EQ(all[0]["event"], 25);
  EXPECT_EQ(all[19]["event"], 6);
  const std::string name = all[0]["name"];
  EXPECT_EQ(store.picture(name), "png 25");
  EXPECT_EQ(store.number_in_this_run(name), 25);
  EXPECT_TRUE(store.mark(name, "seen"));
  EXPECT_EQ(store.list()[0]["mark"], "seen");
  EXPECT_EQ(store.summary()["unseen"], 19);
}

}  // namespace
}  // namespace millrace::page
