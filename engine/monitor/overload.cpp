#include "engine/monitor/overload.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "engine/format.h"
#include "engine/plan/balance.h"

namespace millrace::engine {
namespace {

namespace fs = std::filesystem;

constexpr int kOver = 2, kUnder = 3;  // consecutive loads
constexpr double kRoom = 0.9;         // of the budget
constexpr double kGain = 0.9;         // of the old bottleneck: a new cut must stay below
constexpr std::int64_t kWindow = 48;  // frames
constexpr std::int64_t kRoundsAWindow = 3;
constexpr std::int64_t kFewest = 8;      // frames that suffice after kLong
constexpr double kLong = 0.6;            // seconds
constexpr std::int64_t kFirstPause = 8;  // loads; doubled by each new cut

std::string list_text(const std::vector<int>& list) {
  std::string text;
  for (const int item : list) text += (text.empty() ? "" : ",") + std::to_string(item);
  return text;
}

/// Scales `module_ms` so that each stage's modules sum to the stage's measured time.
std::vector<double> rescaled(std::vector<double> module_ms, const std::vector<int>& cut,
                             const std::vector<double>& stage_ms) {
  for (std::size_t stage = 0; stage < stage_ms.size(); ++stage) {
    const auto begin = module_ms.begin() + (stage == 0 ? 0 : cut[stage - 1]);
    const auto end = stage < cut.size() ? module_ms.begin() + cut[stage] : module_ms.end();
    double sum = 0;
    for (auto module = begin; module != end; ++module) sum += *module;
    for (auto module = begin; module != end; ++module)
      *module = sum > 0 ? *module * stage_ms[stage] / sum : stage_ms[stage] / double(end - begin);
  }
  return module_ms;
}

double number_in(const fs::path& file) {
  double number = 0;
  std::ifstream(file) >> number;
  return number;
}

}  // namespace

int Load::slowest() const {
  return int(std::max_element(stage.begin(), stage.end()) - stage.begin());
}

double Load::took() const {
  return std::max(frame, stage[std::size_t(slowest())]);
}

std::int64_t frames_between(const Totals& before, const Totals& after) {
  std::int64_t least = after.frames - before.frames;
  for (std::size_t i = 0; i < after.stages.size(); ++i)
    least = std::min(least, after.stages[i].steps - before.stages[i].steps);
  return least;
}

Load load_between(const Totals& before, const Totals& after, double budget) {
  const auto mean_ms = [](std::int64_t ns, std::int64_t count) {
    return count > 0 ? 1e-6 * double(ns) / double(count) : 0.0;
  };
  Load load{.stage = {},
            .frame = mean_ms(after.frames_ns - before.frames_ns, after.frames - before.frames),
            .budget = budget};
  for (std::size_t i = 0; i < after.stages.size(); ++i) {
    const Totals::Stage &begin = before.stages[i], &end = after.stages[i];
    load.stage.push_back(mean_ms(end.busy_ns - begin.busy_ns, end.steps - begin.steps) /
                         end.replicas);
  }
  return load;
}

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = {"drop", "skip", "recut"};
  return names;
}

Policy policy_of(const std::string& name) {
  const auto& names = policy_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::invalid_argument("unknown policy \"" + name + "\"");
  return Policy(found - names.begin());
}

std::string text(const Change& change) {
  using Kind = Change::Kind;
  if (change.kind == Kind::none) return "";
  const std::string what =
      change.kind == Kind::late      ? "late"
      : change.kind == Kind::in_time ? "in time again"
      : change.kind == Kind::recut
          ? "re-cut: " + list_text(change.from_cut) + " -> " + list_text(change.cut)
          : "train every: " + std::to_string(change.from_every) + " -> " +
                std::to_string(change.train_every);
  const std::string who = change.stage < 0 ? "a frame" : "stage " + std::to_string(change.stage);
  return format("%s: %s took %.3g ms of %.3g ms", what.c_str(), who.c_str(), change.took_ms,
                change.budget_ms);
}

Overload::Overload(OverloadOptions options) : options_(std::move(options)), pause_(kFirstPause) {}

std::int64_t Overload::window() const {
  return std::max(kWindow, kRoundsAWindow * every_);
}

bool Overload::enough(std::int64_t frames, double seconds) const {
  if (frames >= window()) return true;
  return seconds >= kLong && frames >= std::max(kFewest, kRoundsAWindow * every_);
}

Change Overload::judge(const Load& load) {
  ++loads_;
  if (load.budget <= 0) return {};
  if (settling_) {
    settling_ = false;
    return {};
  }
  over_ = load.took() > load.budget ? over_ + 1 : 0;
  under_ = has_room(load) ? under_ + 1 : 0;
  Change change;
  if (over_ >= kOver) change = respond(load);
  if (under_ >= kUnder) change = give_way(load);
  if (change.kind == Change::Kind::none) return change;
  over_ = under_ = 0;
  change.took_ms = load.took();
  change.budget_ms = load.budget;
  const int slowest = load.slowest();
  const bool by_stage =
      load.stage[std::size_t(slowest)] > load.budget || load.took() <= load.budget;
  change.stage = by_stage ? slowest : -1;
  return change;
}

Change Overload::respond(const Load& load) {
  Change change{.kind = Change::Kind::late};
  if (options_.policy == Policy::skip && every_ < kMostEvery) {
    // Assumes that prediction is free, so it never skips too many; later loads correct it.
    const double enough = std::ceil(double(every_) * load.took() / load.budget);
    change = {.kind = Change::Kind::train_every, .from_every = every_};
    every_ = enough < double(kMostEvery) ? std::max(every_ + 1, std::int64_t(enough)) : kMostEvery;
    change.train_every = every_;
    settling_ = true;
    return change;
  }
  if (options_.policy == Policy::recut && loads_ >= next_cut_ && find_cut(load, change)) {
    next_cut_ = loads_ + pause_;
    pause_ *= 2;
    settling_ = true;
    return change;
  }
  if (late_) return {};
  late_ = true;
  return change;
}

bool Overload::find_cut(const Load& load, Change& change) {
  // A stage's modules share its measured time. Stored, so that later cuts use these measurements.
  options_.module_ms = rescaled(options_.module_ms, options_.cut, load.stage);
  std::vector<int> cut = balanced_cut(options_.module_ms, int(load.stage.size()));
  const double now = load.stage[std::size_t(load.slowest())];
  if (cut == options_.cut || bottleneck(options_.module_ms, cut) > kGain * now) return false;
  if (options_.allowed && !options_.allowed(cut)) return false;
  change = {.kind = Change::Kind::recut, .from_cut = options_.cut, .cut = cut};
  options_.cut = std::move(cut);
  return true;
}

bool Overload::has_room(const Load& load) const {
  if (late_) return load.took() <= kRoom * load.budget;
  // Time with one skipped frame fewer a round: an upper bound, as if skipped frames were free.
  return every_ > 1 && load.took() * double(every_) / double(every_ - 1) <= kRoom * load.budget;
}

Change Overload::give_way(const Load& load) {
  const double enough = std::ceil(double(every_) * load.took() / (kRoom * load.budget));
  const std::int64_t every = std::max<std::int64_t>(1, std::int64_t(enough));
  late_ = false;
  if (every == every_) return {.kind = Change::Kind::in_time};
  settling_ = true;
  return {.kind = Change::Kind::train_every,
          .from_every = std::exchange(every_, every),
          .train_every = every};
}

std::string slow_clock(const std::string& sys) {
  double now = 0, most = 0;
  std::error_code error;
  for (const auto& core : fs::directory_iterator(fs::path(sys) / "devices/system/cpu", error)) {
    const double its_now = number_in(core.path() / "cpufreq/scaling_cur_freq");
    const double its_most = number_in(core.path() / "cpufreq/cpuinfo_max_freq");
    if (its_most > 0 && its_now * most >= now * its_most) now = its_now, most = its_most;
  }
  if (now <= 0 || now >= 0.9 * most) return "";
  double hottest = 0;
  for (const auto& zone : fs::directory_iterator(fs::path(sys) / "class/thermal", error))
    hottest = std::max(hottest, number_in(zone.path() / "temp"));
  const auto rounded = [](double thousands) {
    return std::to_string(std::lround(thousands / 1000));
  };
  std::string told = "cores run at " + rounded(now) + " of " + rounded(most) + " MHz";
  if (hottest > 0) told += ", " + rounded(hottest) + " C";
  return told;
}

}  // namespace millrace::engine
