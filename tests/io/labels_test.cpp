// Labels of a stream: a wrong one would silently teach the network nonsense.
#include "io/source/labels.h"

#include <gtest/gtest.h>

#include "tests/io/reading.h"
#include "tests/io/scripted_source.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::nanoseconds, std::chrono::seconds;

class LabelFile : public testing::Test {
 protected:
  Labels read(const std::string& text) {
    put_bytes(file, text);
    return read_labels(file);
  }
  std::string error_of(const std::string& text) {
    const std::string what = complaint<LabelError>([&] { read(text); });
    EXPECT_TRUE(what.starts_with(file)) << what;
    EXPECT_EQ(what.find('\n'), what.npos);
    return what.substr(std::min(what.size(), file.size()));
  }

  const TestFolder folder;
  const std::string file = folder / "labels.csv";
};

TEST_F(LabelFile, AFramesRowIsThatFramesAlone) {
  const Labels labels = read("frame,class\n0,cat\r\n 2 , dog \n\n7,cat");
  EXPECT_EQ(labels.classes(), (std::vector<std::string>{"cat", "dog"}));
  const std::vector<int> expected = {0, -1, 1, -1, -1, -1, -1, 0, -1};
  for (int n = 0; n < int(expected.size()); ++n) EXPECT_EQ(labels.of(n, seconds(0)), expected[n]);
}

TEST_F(LabelFile, QuotesAroundAFieldAreNotPartOfIt) {
  const Labels labels = read("\"frame\",\"class\"\n0,\"a\"\n\"1\", a\n2,\"say \"\"b\"\"\"\n");
  EXPECT_EQ(labels.classes(), (std::vector<std::string>{"a", "say \"b\""}));
  EXPECT_EQ(labels.of(1, seconds(0)), 0);
  EXPECT_EQ(error_of("class\n"), ":1: must be \"frame,class\" or \"time,class\", not \"class\"");
}

TEST_F(LabelFile, ATimesRowHoldsUntilTheNext) {
  const Labels labels = read("time,class\n1.5,night\n3,day\n4.25,\n");
  const auto at = [&](int ms) { return labels.of(0, milliseconds(ms)); };
  EXPECT_EQ(at(1499), -1);
  EXPECT_EQ(at(1500), 1);
  EXPECT_EQ(at(2999), 1);
  EXPECT_EQ(at(3000), 0);
  EXPECT_EQ(at(4250), -1) << "an empty class ends it";
}

TEST_F(LabelFile, NamedClassesKeepTheirOrderAndOthersAreRefused) {
  put_bytes(file, "time,class\n0,day\n3,night\n");
  const Labels labels = read_labels(file, {"night", "dusk", "day"});
  EXPECT_EQ(labels.of(0, seconds(0)), 2);
  EXPECT_EQ(labels.of(0, seconds(4)), 0);
  EXPECT_EQ(labels.without_rows(), std::vector<std::string>{"dusk"});
  EXPECT_TRUE(labels.lasting());
  const std::string what = complaint<LabelError>([&] { read_labels(file, {"day", "nights"}); });
  EXPECT_EQ(what.substr(file.size()),
            ":3: task.classes has no \"night\"; the nearest is \"nights\"");
}

TEST_F(LabelFile, NumbersFromZeroAreClassesAsTheyStand) {
  const Labels labels = read("frame,class\n0,2\n1,0\n2,1\n3,2\n");
  EXPECT_EQ(labels.of(0, seconds(0)), 2);
  EXPECT_EQ(labels.of(1, seconds(0)), 0);
  // 1 and 7 are names: class 0 would never be told.
  EXPECT_EQ(read("frame,class\n0,7\n1,1\n").of(0, seconds(0)), 1);
}

TEST_F(LabelFile, ABadRowIsNamedByItsLine) {
  EXPECT_EQ(error_of("0,cat\n"), ":1: must be \"frame,class\" or \"time,class\", not \"0,cat\"");
  EXPECT_EQ(error_of("frame,class\n0,cat\none,dog\n"),
            ":3: a frame number, 0 or more, and a class were expected here, not \"one,dog\"");
  for (const char* bad : {"frame,class\n1.5,cat\n", "frame,class\n-1,cat\n"})
    EXPECT_TRUE(error_of(bad).starts_with(":2: ")) << bad;
  for (const char* bad : {"time,class\nnan,cat\n", "time,class\n1e999,cat\n"})
    EXPECT_TRUE(error_of(bad).starts_with(":2: seconds")) << bad;
  EXPECT_EQ(error_of("frame,class\n5,cat\n\n5,dog\n"), ":4: \"5\" does not come after line 2's");
  EXPECT_EQ(error_of("frame,class\n5,\n"), ":2: the class is missing");
  EXPECT_NE(error_of("frame,class\n5,a,b\n").find(":2: a class is one name"), std::string::npos);
  EXPECT_EQ(error_of("frame,class\n5\x1b[2J\n").find('\x1b'), std::string::npos);
  EXPECT_EQ(error_of("frame,class\n"), ": contains no class");
  EXPECT_EQ(error_of(""), ": contains no class");
  std::string many = "frame,class\n";
  for (int n = 0; n <= 1000; ++n) many += std::to_string(n) + ",c" + std::to_string(n) + "\n";
  EXPECT_EQ(error_of(many), ":1002: more than 1000 classes");
  EXPECT_THROW(read_labels(folder / "none.csv"), LabelError);
  EXPECT_THROW(read_labels(folder.path()), LabelError);
}

TEST_F(LabelFile, JsonLinesSayTheSame) {
  const Labels frames =
      read("{\"frame\": 0, \"class\": \"cat\"}\n\n{\"class\": \"dog\", \"frame\": 2}\n");
  EXPECT_EQ(frames.classes(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(frames.of(1, seconds(0)), -1);
  EXPECT_EQ(frames.of(2, seconds(0)), 1);
  EXPECT_EQ(frames.beyond(1), (std::pair<std::size_t, std::int64_t>{1, 2}));
  const Labels times = read("{\"time\": 1.5, \"class\": 0}\n{\"time\": 3, \"class\": null}\n");
  EXPECT_EQ(times.of(0, seconds(2)), 0);
  EXPECT_EQ(times.of(0, seconds(3)), -1);
  EXPECT_TRUE(error_of("{\"frame\": 0, \"class\": \"a\"}\n{\"frame\": 1}\n")
                  .starts_with(":2: a label is JSON"));
  for (const char* bad : {"{\"frame\": -1, \"class\": \"a\"}", "{\"frame\": 1.5, \"class\": \"a\"}",
                          "{\"frame\": 1, \"class\": [1]}", "{\"frme\": 1, \"class\": \"a\"}", "{]",
                          "{\"frame\": 1, \"class\": \"a\\u001b\"}", "{\"class\": \"a\"}"})
    EXPECT_NE(error_of(bad).find(":1: "), std::string::npos) << bad;
  EXPECT_TRUE(error_of("{\"time\": 0, \"class\": \"a\"}\n{\"frame\": 1, \"class\": \"a\"}\n")
                  .starts_with(":2: \"time\""));
}

TEST(LiveLabels, HoldUntilTheNextAndThoseOfAFrameAreItsAlone) {
  LiveLabels labels({"day", "night"});
  EXPECT_EQ(labels.of(0), -1);
  EXPECT_EQ(labels.hear("{\"class\": \"night\"}"), "");
  EXPECT_EQ(labels.hear("{\"class\": \"day\", \"frame\": 2}"), "");
  EXPECT_EQ(labels.hear("{\"class\": \"day\", \"frame\": 0}"), "frame 0 has already passed");
  EXPECT_EQ(labels.hear("{\"class\": \"dusk\"}"),
            "unknown class \"dusk\"; there are day, night; the nearest is \"day\"");
  EXPECT_NE(labels.hear("{\"class\": \"day\", \"time\": 1}"), "");
  EXPECT_EQ(labels.of(1), 1);
  EXPECT_EQ(labels.waiting().first, 1u);
  EXPECT_EQ(labels.of(2), 0);
  EXPECT_EQ(labels.of(3), 1);
  EXPECT_EQ(labels.hear("{\"class\": null}"), "");
  EXPECT_EQ(labels.of(4), -1);
}

TEST(LiveLabels, EndAfterTheLimitByThemselves) {
  LiveLabels labels({"day", "night"});
  labels.remember(std::chrono::seconds(0));
  EXPECT_EQ(labels.hear("{\"class\": \"night\"}"), "");
  EXPECT_EQ(labels.of(0), -1);
  EXPECT_EQ(labels.now(), "");
  labels.remember(std::chrono::hours(1));
  EXPECT_EQ(labels.hear("{\"class\": \"night\"}"), "");
  EXPECT_EQ(labels.of(1), 1);
  EXPECT_EQ(labels.now(), "night");
}

TEST(LiveLabels, AreForgottenWhereTheyAreRemembered) {
  LiveLabels labels({"day", "night"});
  EXPECT_NE(labels.hear("{\"forget\": \"night\"}"), "") << "not remembered";
  labels.remember(std::chrono::hours(1));
  for (const char* told : {"{\"class\": \"night\"}", "{\"class\": \"night\", \"frame\": 1}",
                           "{\"forget\": \"night\"}", "{\"forget\": \"night\"}"})
    EXPECT_EQ(labels.hear(told), "");
  EXPECT_NE(labels.hear("{\"forget\": null}"), "");
  EXPECT_NE(labels.hear("{\"forget\": \"dusk\"}"), "");
  EXPECT_EQ(labels.of(0), -1);
  EXPECT_EQ(labels.of(1), -1);
  EXPECT_EQ(labels.take_forgotten(), std::set<int>{1});
  EXPECT_EQ(labels.take_forgotten(), std::set<int>{});
}

/// Five frames, the second of them corrupt, 100 ms apart from 7 s on; with those labels.
std::unique_ptr<Source> labelled(const Labels& labels) {
  Script script{.pts = every(milliseconds(100), 5, seconds(7)), .corrupt = {1}};
  return with_teller(std::make_unique<ScriptedSource>(std::move(script)), teller_of(labels));
}

std::vector<int> labels_seen(Source& source) {
  std::vector<int> seen;
  for (const Frame& frame : read_all(source).frames) seen.push_back(frame.label);
  return seen;
}

TEST_F(LabelFile, ACorruptFrameDoesNotShiftTheLabelsBehindIt) {
  const auto source = labelled(read("frame,class\n0,a\n1,b\n2,c\n4,a\n"));
  EXPECT_EQ(source->info().classes, 3);
  EXPECT_EQ(labels_seen(*source), (std::vector<int>{0, 2, -1, 0}));
  source->rewind();
  EXPECT_EQ(labels_seen(*source), (std::vector<int>{0, 2, -1, 0})) << "a loop begins again";
}

TEST_F(LabelFile, TimesCountFromTheFirstFrame) {
  const auto source = labelled(read("time,class\n0,a\n0.15,b\n0.35,\n"));
  EXPECT_EQ(labels_seen(*source), (std::vector<int>{0, 1, 1, -1}));
}

}  // namespace
}  // namespace millrace::io
