#include "engine/plan/cut.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/schedule/registry.h"
#include "tests/engine/plan/random_profile.h"

namespace millrace::engine::plan {
namespace {

/// A stage's costs by their definition, module by module and device by device: shares no line with
/// CostModel.
class Definition {
 public:
  Definition(const Profile& profile, const Machine& machine, const Method& method)
      : profile_(profile), machine_(machine), method_(method) {}

  double period(const Stage& stage) const {
    double r = stage.replicas;
    if (schedule_entry(method_.schedule).flushes) r = method_.microbatches / rounds(stage.replicas);
    const double speed = profile_.thread_speedup[stage.threads - 1];
    const double group = std::max(method_.microbatches, stage.replicas);
    double compute = 0, update = 0, weights = 0;
    for (int i = stage.begin; i < stage.end; ++i) {
      const ModuleProfile& m = profile_.modules[i];
      const double ways = std::min(m.tensor_ways, method_.tensor);
      const double adds_up = m.tensor_bytes > 0 ? ring(shared(), m.tensor_bytes, int(ways)) : 0;
      const double forward = m.forward.median / ways + adds_up;
      compute += forward * (method_.recompute ? 2 : 1) + m.weight_gradient.median / ways;
      if (i > 0) compute += m.input_gradient.median / ways + adds_up;
      update += m.update.median / ways;
      weights += m.bytes.weight / ways;
    }
    const double work = compute / r / speed + update / group / speed;
    const Link& around = machine_.levels[worst(all(stage), all(stage))].link;
    const double agree = ring(around, weights, stage.replicas * method_.copies) / group;
    double arrive = 0, leave = 0;
    if (stage.begin > 0) {
      const Stage before{.place = stage.place - 1};
      arrive = cross(before, stage, stage.begin) / r;
    }
    if (stage.end < int(profile_.modules.size())) {
      const Stage after{.place = stage.place + stage.places()};
      leave = cross(stage, after, stage.end) / r;
    }
    if (machine_.overlap == Overlap::none) return work + agree + arrive + leave;
    if (machine_.overlap == Overlap::transfers) return std::max({work + agree, arrive, leave});
    return std::max({work, agree, arrive, leave});
  }

  double memory(const Stage& stage, int behind) const {
    const int deep = 1 + int(std::ceil(double(behind) / stage.replicas));
    const int versions = schedule_entry(method_.schedule).versions_kept(deep);
    const int samples =
        schedule_entry(method_.schedule).samples_kept(deep, 0, int(rounds(stage.replicas)));
    double bytes = stage.begin == 0 ? machine_.replay_bytes : 0, stash = 0;
    for (int i = stage.begin; i < stage.end; ++i) {
      const ModuleProfile& m = profile_.modules[i];
      const int ways = std::min(m.tensor_ways, method_.tensor);
      bytes += ((versions + 1) * m.bytes.weight + m.bytes.state) / ways;
      stash += m.bytes.stash / ways;
    }
    const double input =
        stage.begin > 0 ? profile_.modules[stage.begin - 1].bytes.activation : profile_.input_bytes;
    return bytes + (method_.recompute ? stash + samples * input : samples * stash);
  }

 private:
  /// In which replicas work through a minibatch.
  double rounds(int replicas) const { return std::ceil(double(method_.microbatches) / replicas); }
  static double ring(const Link& link, double bytes, int members) {
    if (members == 1) return 0;
    double ms = 0;
    for (int step = 0; step < 2 * (members - 1); ++step) ms += link.ms(bytes / members);
    return ms;
  }
  /// The link over which the devices of a place all-reduce: the worst of all places.
  Link shared() const {
    int level = 0;
    const int places = machine_.devices() / method_.tensor / method_.copies;
    for (int place = 0; place < places; ++place) {
      for (int copy = 0; copy < method_.copies; ++copy) {
        level = std::max(level, worst(devices(place, copy), devices(place, copy)));
      }
    }
    return machine_.levels[level].link;
  }
  std::vector<int> devices(int place, int copy) const {
    const int row = machine_.devices() / method_.tensor / method_.copies;
    const int first = method_.copies_inside ? place * method_.copies + copy : copy * row + place;
    std::vector<int> list;
    for (int t = 0; t < method_.tensor; ++t) list.push_back(first * method_.tensor + t);
    return list;
  }
  std::vector<int> devices_of(const Stage& stage, int copy) const {
    std::vector<int> list;
    for (int place = stage.place; place < stage.place + stage.places(); ++place) {
      for (int device : devices(place, copy)) list.push_back(device);
    }
    return list;
  }
  std::vector<int> all(const Stage& stage) const {
    std::vector<int> list;
    for (int copy = 0; copy < method_.copies; ++copy) {
      for (int device : devices_of(stage, copy)) list.push_back(device);
    }
    return list;
  }
  /// The outermost level between any of some devices and any of others.
  int worst(const std::vector<int>& some, const std::vector<int>& others) const {
    int level = 0;
    for (int a : some) {
      for (int b : others) {
        for (int at = 0, size = 1; at < int(machine_.levels.size()); ++at) {
          if (a / size != b / size) level = std::max(level, at);
          size *= machine_.levels[at].count;
        }
      }
    }
    return level;
  }
  double cross(const Stage& from, const Stage& to, int cut) const {
    int level = 0;
    for (int copy = 0; copy < method_.copies; ++copy) {
      level = std::max(level, worst(devices_of(from, copy), devices_of(to, copy)));
    }
    const StepBytes& bytes = profile_.modules[cut - 1].bytes;
    const Link& link = machine_.levels[level].link;
    return link.ms(bytes.activation) + link.ms(bytes.gradient);
  }

  const Profile& profile_;
  const Machine& machine_;
  const Method& method_;
};

struct Case {
  Profile profile;
  Machine machine;
  Method method;
  Freedom freedom;
};

Case random_case(std::mt19937& random) {
  Case c;
  c.profile = random_profile(random, 1 + int(random() % 10));
  c.profile.thread_speedup = {1.0, 1.7, 2.1, 2.9};
  const std::vector<std::vector<int>> shapes = {{1},    {2},    {3},       {4},   {2, 2},
                                                {1, 3}, {4, 2}, {2, 2, 2}, {3, 2}};
  c.machine.levels.clear();
  for (int count : shapes[random() % shapes.size()]) {
    c.machine.levels.push_back({count, {random_cost(random, 2), 5 + random_cost(random, 100)}});
  }
  c.machine.overlap = Overlap(random() % 3);
  const std::vector<std::string> schedules = {"partime", "pb", "pipedream", "2bw", "gpipe", "1f1b"};
  c.method.schedule = schedules[random() % schedules.size()];
  if (schedule_entry(c.method.schedule).minibatches) c.method.microbatches = 1 + int(random() % 6);
  c.method.recompute = random() % 3 == 0;
  int places = c.machine.devices();
  for (int* share : {&c.method.copies, &c.method.tensor}) {
    if (places % 2 == 0 && random() % 3 == 0) {
      *share = 2;
      places /= 2;
    }
  }
  if (places > 4) {  // 4 are few enough to try all cuts
    c.method.copies *= 2;
    places /= 2;
  }
  for (ModuleProfile& m : c.profile.modules) {
    m.tensor_ways = 1 + int(random() % 3);
    m.tensor_bytes = m.tensor_gradient_bytes = random_cost(random, 20);
  }
  if (c.method.copies > 1) c.method.copies_inside = random() % 2 == 0;
  c.freedom.replicas = random() % 2 == 0;
  c.freedom.threads = random() % 3 == 0;
  if (!c.freedom.replicas && !c.freedom.threads && random() % 3 == 0) {
    c.freedom.stages = 1 + int(random() % places);
  }
  return c;
}

/// Least period among all plans within memory.
double exhaustive(const Case& c) {
  const Definition definition(c.profile, c.machine, c.method);
  const int places = c.machine.devices() / c.method.tensor / c.method.copies;
  double best = std::numeric_limits<double>::infinity();
  each_plan(int(c.profile.modules.size()), places, c.freedom, [&](const std::vector<Stage>& plan) {
    if (c.method.schedule == "2bw" && in_flight(plan, places) > c.method.microbatches) return;
    double period = 0;
    for (const Stage& stage : plan) {
      if (schedule_entry(c.method.schedule).flushes && stage.replicas > c.method.microbatches)
        return;
      const int behind = places - stage.place - stage.places();
      if (c.machine.memory_bytes > 0 && definition.memory(stage, behind) > c.machine.memory_bytes) {
        return;
      }
      period = std::max(period, definition.period(stage));
    }
    best = std::min(best, period);
  });
  return best;
}

void expect_exact(const Case& c) {
  const double least = exhaustive(c);
  const CostModel model(c.profile, c.machine, c.method);
  const std::optional<Cut> cut = best_cut(model, c.freedom);
  ASSERT_EQ(cut.has_value(), std::isfinite(least));
  if (!cut) return;
  EXPECT_NEAR(cut->period_ms, least, 1e-9 * (1 + least));
  const Definition definition(c.profile, c.machine, c.method);
  double period = 0;
  for (const Stage& stage : cut->stages) period = std::max(period, definition.period(stage));
  EXPECT_NEAR(period, cut->period_ms, 1e-9 * (1 + least));  // the cut really has its period
}

TEST(Cut, IsTheExactMinimumWithReplicasCommunicationHierarchyAndMemory) {
  std::mt19937 random(1);
  int fit = 0, unfit = 0;  // within memory
  for (int trial = 0; trial < 1200; ++trial) {
    SCOPED_TRACE(trial);
    Case c = random_case(random);
    if (trial % 2 > 0) {
      const double all = CostModel(c.profile, c.machine, c.method).memory_sums(1, 1).back();
      c.machine.memory_bytes = 1 + std::uniform_real_distribution<double>(0.1, 2)(random) * all;
      c.machine.replay_bytes = random_cost(random, 0.3 * all);
      (std::isfinite(exhaustive(c)) ? fit : unfit)++;
    }
    expect_exact(c);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(fit, 100);  // both outcomes occurred
  EXPECT_GT(unfit, 50);
}

TEST(Cut, RefusesMoreStagesThanModulesOrPlaces) {
  std::mt19937 random(4);
  const Profile profile = random_profile(random, 3);
  const Machine machine{.levels = {{8, {}}}};
  EXPECT_FALSE(best_cut(CostModel(profile, machine, {}), {.stages = 4}));
  EXPECT_FALSE(best_cut(CostModel(profile, machine, {}), {.stages = 9}));
  EXPECT_TRUE(best_cut(CostModel(profile, machine, {}), {}));  // three places, five idle
}

}  // namespace
}  // namespace millrace::engine::plan
