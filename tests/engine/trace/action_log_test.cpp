#include "engine/trace/action_log.h"

#include <gtest/gtest.h>

#include "engine/schedule/registry.h"
#include "tests/engine/fake_pipeline.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;

std::vector<Span> actions_of(const Schedule& schedule, std::int64_t samples) {
  ActionLog log(int(schedule.workers.size()));
  FakePipeline(schedule, samples).run({.actions = &log});
  std::vector<Span> spans = log.spans();
  std::erase_if(spans, [](const Span& span) { return span.waiting; });
  return spans;
}

/// Pipedream's stashed version of the sample's forward; otherwise the newest.
TEST(ActionLog, AnActionSaysTheVersionThatItMeets) {
  for (const std::string name : {"pipedream", "partime"}) {
    std::map<int, std::int64_t> newest;
    std::map<std::pair<int, std::int64_t>, std::int64_t> forward;
    for (const Span& span : actions_of(make_schedule(name, {.stages = 3}), 12)) {
      const auto& [op, stage, sample, gradient, version] = span.action;
      if (op == Op::update) ++newest[stage];
      if (op == Op::forward) forward[{stage, sample}] = span.version;
      const bool stashed = name == "pipedream" && op == Op::backward;
      EXPECT_EQ(span.version, stashed ? forward.at({stage, sample}) : newest[stage]) << name;
    }
  }
}

TEST(ActionLog, KeepsTheLatestActionsAndCountsInTheirOrder) {
  const Clock::time_point origin{};
  ActionTrack track(3, 4, origin);
  for (int i = 0; i < 6; ++i) {
    track.begin({.sample = i}, origin + i * 10us);
    track.end(i, origin + i * 10us + 5us);
  }
  EXPECT_EQ(track.lost(), 2);
  const std::vector<Span> spans = track.spans();
  ASSERT_EQ(spans.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(spans[std::size_t(i)].worker, 3);
    EXPECT_EQ(spans[std::size_t(i)].action.sample, i + 2);
    EXPECT_EQ(spans[std::size_t(i)].start_ns, (i + 2) * 10'000);
  }
  ActionLog log(1, 1);
  for (std::size_t i = 0; i < ActionLog::kCounts + 3; ++i)
    log.count({.dropped = std::int64_t(i)}, Clock::now());
  const std::vector<Counts> counts = log.counts();
  ASSERT_EQ(counts.size(), ActionLog::kCounts);
  for (std::size_t i = 0; i < counts.size(); ++i) ASSERT_EQ(counts[i].dropped, std::int64_t(i) + 3);
}

TEST(ActionLog, AnActionBeginsWhereItsWaitEndsAndALookIsNone) {
  const Clock::time_point origin{};
  ActionTrack track(0, 8, origin);
  track.begin({.sample = 1}, origin);
  track.waited(origin, origin + 900ns);
  track.waited(origin + 1us, origin + 50us);
  track.end(0, origin + 60us);
  const std::vector<Span> spans = track.spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_TRUE(spans[0].waiting);
  EXPECT_EQ(spans[0].start_ns, 1'000);
  EXPECT_EQ(spans[0].end_ns, 50'000);
  EXPECT_FALSE(spans[1].waiting);
  EXPECT_EQ(spans[1].start_ns, 50'000);
  EXPECT_EQ(spans[1].end_ns, 60'000);
}

TEST(Trace, NamesAndTimesMayBeAny) {
  EXPECT_EQ(trace_json("", {}, {}), R"({"displayTimeUnit":"ms","traceEvents":[
{"name":"process_name","ph":"M","pid":1,"args":{"name":""}}
]}
)");
  const std::vector<Span> spans = {{0, {}, -1'500, -1'400},
                                   {0, {}, 5'000'000'000'000'007, 5'000'000'000'000'010}};
  const std::string odd = trace_json("a\"b\\c\n \xe2\x82\xac \xff", {}, spans);
  for (const char* part : {"\"a\\\"b\\\\c\\n \xe2\x82\xac \xef\xbf\xbd\"",
                           "\"ts\":-1.500,\"dur\":0.100", "\"ts\":5000000000000.007,\"dur\":0.003"})
    EXPECT_NE(odd.find(part), std::string::npos) << odd;
}

}  // namespace
}  // namespace millrace::engine
