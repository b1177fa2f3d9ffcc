#include <gtest/gtest.h>

#include <stdexcept>

#include "engine/schedule/registry.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/schedule_csv.h"
#include "engine/schedule/verifier.h"
#include "tests/complaint.h"

namespace millrace::engine {
namespace {

/// Compares the worker's first actions with `expected`, "F0 B2(0) U2".
void expect_actions(const Program& program, const std::string& expected, bool staged) {
  std::string line;
  for (int i = 0; line.size() < expected.size(); ++i)
    line += (i > 0 ? " " : "") + action_text(program.at(i), staged);
  EXPECT_EQ(line, expected);
}

/// Compares the workers' first actions; "": any.
void expect_workers(const ScheduleSpec& spec, const std::vector<std::string>& expected) {
  SCOPED_TRACE(spec.schedule);
  const Schedule schedule = make_schedule(spec);
  ASSERT_EQ(schedule.workers.size(), expected.size());
  const bool staged = int(expected.size()) < spec.stages;
  for (std::size_t i = 0; i < expected.size(); ++i)
    expect_actions(schedule.workers[i], expected[i], staged);
}

TEST(Generators, WriteTheStaircasesOfTheirPapers) {
  expect_workers({.schedule = "partime", .stages = 3},
                 {"F0 F1 F2 F3 F4 B4(2) U4 F5 B5(3) U5", "F0 F1 F2 B2(0) U2 F3 B3(1) U3",
                  "F0 B0 U0 F1 B1 U1"});
  expect_workers({.schedule = "sequential", .stages = 2},
                 {"F0 B0 U0 F1 B1 U1", "F0 B0 U0 F1 B1 U1"});
  expect_workers({.schedule = "pb", .stages = 3},
                 {"F0 F1 F2 F3 F4 B0 U0 F5 B1 U1", "", "F0 B0 U0 F1 B1 U1"});
  for (const char* name : {"partime", "pb"})
    expect_workers(
        {.schedule = name, .stages = 3, .deep_supervision = true},
        {"F0 F1 F2 F3 F4 L4 R0 B0 U0 F5 L5 R1 B1 U1", "F0 F1 F2 L2 R0 B0 U0", "F0 B0 U0 F1 B1 U1"});
  expect_workers({.schedule = "pipedream", .stages = 3},
                 {"F0^0 F1^0 F2^0 B0 U0 F3^1 B1 U1 F4^2 B2 U2",
                  "F0^0 F1^0 B0 U0 F2^1 B1 U1 F3^2 B2 U2", "F0^0 B0 U0 F1^1 B1 U1"});
  expect_workers(
      {.schedule = "pipedream", .stages = 3, .vertical_sync = true},
      {"F0^0 F1^0 F2^0 B0 U0 F3^1 B1 U1", "", "F0^0 B0 U0 F1^0 B1 U1 F2^0 B2 U2 F3^1 B3 U3"});
  expect_workers({.schedule = "pipedream", .stages = 2, .replicas = {2, 1}},
                 {"F0^0 F2^0 B0 U1 F4^1 B2 U3 F6^2", "F1^0 F3^0 B1 U1 F5^1 B3 U3 F7^2",
                  "F0^0 B0 U0 F1^1 B1 U1"});
  expect_workers({.schedule = "2bw", .stages = 2, .microbatches = 2},
                 {"F0^0 F1^0 B0 F2^0 B1 U1 F3^0 B2 F4^1 B3 U3 F5^1 B4 F6^2 B5 U5",
                  "F0^0 B0 F1^0 B1 U1 F2^0 B2 F3^0 B3 U3"});
  expect_workers({.schedule = "gpipe", .stages = 3, .microbatches = 3},
                 std::vector<std::string>(3, "F0 F1 F2 B0 B1 B2 U2 F3"));
  expect_workers({.schedule = "gpipe", .stages = 2, .microbatches = 2, .recompute = true},
                 {"F0 F1 R0 B0 R1 B1 U1", ""});
  expect_workers({.schedule = "1f1b", .stages = 3, .microbatches = 4},
                 {"F0 F1 F2 B0 F3 B1 B2 B3 U3 F4", "F0 F1 B0 F2 B1 F3 B2 B3 U3 F4",
                  "F0 B0 F1 B1 F2 B2 F3 B3 U3 F4"});
  expect_workers(
      {.schedule = "interleaved", .stages = 4, .microbatches = 2, .virtual_stages = 2},
      {"0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1 2U1 0U1", "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1 3U1 1U1"});
  expect_workers(
      {.schedule = "zb-h1", .stages = 3, .microbatches = 4},
      {"F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3 U3 F4", "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3 U3 F4",
       "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3 U3 F4"});
}

TEST(WorkerNames, SayReplicasAndChunks) {
  EXPECT_EQ(worker_names(make_schedule("pipedream", {.stages = 2, .replicas = {2, 1}})),
            (std::vector<std::string>{"stage 0.0", "stage 0.1", "stage 1.0"}));
  EXPECT_EQ(worker_names(make_schedule("interleaved", {.stages = 4})),
            (std::vector<std::string>{"worker 0", "worker 1"}));
}

TEST(MakeSchedule, RefusesWhatItDoesNotKnowAndOptionsThatCannotBe) {
  for (const ScheduleSpec& spec : std::vector<ScheduleSpec>{
           {.schedule = "partme"},
           {.schedule = "partime", .stages = 0},
           {.schedule = "2bw", .stages = 4, .microbatches = 3},
           {.schedule = "gpipe", .replicas = {2, 1}},
           {.schedule = "pipedream", .replicas = {2}},
           {.schedule = "pipedream", .replicas = {0, 1}},
           {.schedule = "pipedream", .vertical_sync = true, .replicas = {2, 1}},
           {.schedule = "interleaved", .stages = 5, .virtual_stages = 2},
           {.schedule = "interleaved", .stages = 6, .microbatches = 4, .virtual_stages = 2}})
    EXPECT_THROW(make_schedule(spec), std::invalid_argument) << spec.schedule;
}

TEST(GradientAges, FollowFromTheActions) {
  using Ages = std::vector<std::int64_t>;
  const std::map<std::string, Ages> ages = {{"partime", {4, 2, 0}},   {"pb", {4, 2, 0}},
                                            {"pipedream", {2, 1, 0}}, {"gpipe", {0, 0, 0}},
                                            {"2bw", {4, 4, 4}},       {"sequential", {0, 0, 0}}};
  for (const auto& [name, expected] : ages)
    EXPECT_EQ(gradient_ages(make_schedule(name, {.stages = 3})), expected) << name;
  EXPECT_EQ(gradient_ages(make_schedule("pipedream", {.stages = 3, .vertical_sync = true})),
            (Ages{2, 2, 2}));
  EXPECT_EQ(gradient_ages(make_schedule("pipedream", {.stages = 2, .replicas = {2, 1}})),
            (Ages{2, 0}));
  EXPECT_EQ(gradient_ages(make_schedule("2bw", {.stages = 1, .microbatches = 1})), (Ages{1}));
  // For a stage's own loss: 0 where the stage goes backward at once.
  EXPECT_EQ(gradient_ages(make_schedule("partime", {.stages = 3}), true), (Ages{0, 0, 0}));
  EXPECT_EQ(gradient_ages(make_schedule("pb", {.stages = 3}), true), (Ages{4, 2, 0}));
  EXPECT_EQ(gradient_ages(make_schedule("pipedream", {.stages = 3}), true), (Ages{2, 1, 0}));
}

TEST(ScheduleTable, HoldsEachNameOnceAndSaysWhatItsGeneratorWrites) {
  for (const ScheduleEntry& entry : schedule_table()) {
    const Schedule schedule = make_schedule(entry.name, {.stages = 4, .microbatches = 4});
    EXPECT_EQ(entry.minibatches, schedule.group > 1) << entry.name;
    EXPECT_EQ(entry.flushes, schedule.flushes()) << entry.name;
    EXPECT_STREQ(schedule_entry(entry.name).summary, entry.summary);
    EXPECT_THROW(register_schedule(entry), std::invalid_argument) << entry.name;
  }
  EXPECT_THROW(schedule_entry("nosuch"), std::invalid_argument);
}

std::string complaint_about(const std::string& text) {
  return complaint<std::invalid_argument>([&] { parse_schedule_csv(text); });
}

TEST(ScheduleCsv, ReadsWhatPyTorchWrites) {
  const auto actions = [](const char* text, std::size_t worker) {
    const Schedule s = parse_schedule_csv(text);
    EXPECT_FALSE(verify(s)) << text;
    std::string all;
    for (const Action& a : s.workers[worker].period) all += action_text(a, true) + " ";
    return all;
  };
  EXPECT_EQ(actions("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD,0RESHARD\n"
                    "1RECV_F0,1F0,1B0,1SEND_B0",
                    0),
            "0F0 0I0 0W0 0U0 ")
      << "the rest is implied";
  EXPECT_EQ(actions("0F0,(0F1;0B0)OVERLAP_F_B,0B1", 0), "0F0 0F1 0B0 0B1 0U1 ");
  EXPECT_EQ(actions("0F0,,,0F1,0B0,,0B1\n,1F1,1B0,1F2,1B1", 1), "1F0 1B0 1F1 1B1 1U1 ")
      << "of its 1F1B's last rank";
}

TEST(ScheduleCsv, SaysWhereItCannotRead) {
  EXPECT_EQ(complaint_about("0F0,0B0\n1F0,1X0"),
            "2:5: \"1X0\" is no action, such as 2F0 (stage 2 forwards sample 0), 2B0, 2I0, 2W0");
  EXPECT_EQ(complaint_about("0F0,0B"), "1:5: \"0B\" names no sample, as in 2F0");
  EXPECT_NE(complaint_about("0F0^1,0B0").find("1:1: \"0F0^1\" is no action"), std::string::npos);
  EXPECT_NE(complaint_about("0F0,0B0,0U0").find("1:9: \"0U0\""), std::string::npos);
  EXPECT_EQ(complaint_about("0F0,0B0\n\n1F0,1B0"), "2:1: a worker without actions");
  EXPECT_NE(complaint_about(""), "");
  EXPECT_NE(complaint_about("0F99999999999999999999"), "");
  EXPECT_THROW(make_schedule("no/such.csv", {}), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine
