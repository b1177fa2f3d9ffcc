// What is kept of a run's actions: all of them, in order, with their versions and waits.
#include "engine/trace/action_log.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/engine/counted_feed.h"
#include "tests/engine/empty_step.h"
#include "tests/engine/stall_watch.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;

std::vector<Span> actions_of(const Schedule& schedule, std::int64_t samples) {
  std::vector<EmptyStep> steps(std::size_t(schedule.replica_ids()));
  std::vector<capture::Step*> pointers;
  for (EmptyStep& step : steps) pointers.push_back(&step);
  CountedFeed feed(samples);
  Monitor monitor(schedule.replica_counts(), 0);
  ActionLog log(int(schedule.workers.size()));
  PipelineOptions options{.actions = &log};
  const StallWatch watch(schedule, options);
  Pipeline(schedule, pointers, feed, nullptr, monitor, options).run();
  std::vector<Span> spans = log.spans();
  std::erase_if(spans, [](const Span& span) { return span.waiting; });
  return spans;
}

TEST(ActionLog, HoldsWhatTheScheduleSaysInItsOrder) {
  constexpr std::int64_t kSamples = 24;
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = make_schedule(name, {.stages = 4});
    const std::vector<Span> spans = actions_of(schedule, kSamples);
    std::size_t next = 0;
    for (int worker = 0; worker < int(schedule.workers.size()); ++worker) {
      const Program& program = schedule.workers[std::size_t(worker)];
      for (std::int64_t at = 0; !program.over(at, kSamples); ++at) {
        if (program.at(at).sample >= kSamples) continue;
        ASSERT_LT(next, spans.size()) << name;
        EXPECT_EQ(spans[next].worker, worker) << name;
        EXPECT_EQ(spans[next].action, program.at(at)) << name << " at " << at;
        EXPECT_LE(spans[next].start_ns, spans[next].end_ns);
        ++next;
      }
    }
    EXPECT_EQ(next, spans.size()) << name;
  }
}

TEST(ActionLog, ABackwardMeetsTheVersionOfItsForwardWhereOldOnesAreKept) {
  const Schedule schedule = make_schedule("pipedream", {.stages = 3});
  std::map<std::pair<int, std::int64_t>, std::int64_t> forward;
  for (const Span& span : actions_of(schedule, 12)) {
    const auto key = std::pair(span.action.stage, span.action.sample);
    if (span.action.op == Op::forward) forward[key] = span.version;
    if (span.action.op == Op::backward) {
      EXPECT_EQ(span.version, forward.at(key));
    }
    if (span.action.op == Op::update) {
      EXPECT_EQ(span.version, span.action.sample + 1);
    }
  }
}

TEST(ActionLog, WithoutStashesAnActionMeetsWhatIsNewest) {
  const Schedule schedule = make_schedule("partime", {.stages = 2});
  std::map<int, std::int64_t> made;
  for (const Span& span : actions_of(schedule, 12)) {
    if (span.action.op == Op::update) ++made[span.action.stage];
    EXPECT_EQ(span.version, made[span.action.stage]);
  }
}

TEST(ActionLog, KeepsTheLatestAndCountsTheRest) {
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
}

TEST(ActionLog, KeepsTheLatestCountsInTheirOrder) {
  ActionLog log(1, 1);
  const Clock::time_point now = Clock::now();
  for (std::size_t i = 0; i < ActionLog::kCounts + 3; ++i)
    log.count({.dropped = std::int64_t(i)}, now);
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

}  // namespace
}  // namespace millrace::engine
