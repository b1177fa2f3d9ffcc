#include <nlohmann/json.hpp>

#include "engine/plan/machine.h"
#include "engine/plan/plan.h"
#include "engine/plan_files/profile_json.h"
#include "tools/app/config/profile_read.h"
#include "tools/bench/measure.h"

namespace millrace::bench {

using namespace engine::plan;

namespace {

Profile profile_in(const Json& question) {
  return profile_from_json(question.at("profile").dump(), "profile");
}

Machine machine_in(const Json& question, const Profile& profile) {
  return parse_machine(question.at("devices"), question.value("links", ""),
                       question.value("overlap", "none"), 0, profile);
}

}  // namespace

/// {"path", "frames"}: a profile file as JSON.
const Question kProfile("profile", [](const Json& question) -> Json {
  return Json::parse(
      profile_to_json(app::read_profile(question.at("path"), question.at("frames"))));
});

/// {"profile", "devices", "links", "overlap", "schedule"}: periods of the best cut with and without
/// replicas and of data parallelism.
const Question kCuts("cuts", [](const Json& question) -> Json {
  const Profile profile = profile_in(question);
  const Machine machine = machine_in(question, profile);
  const CostModel model(profile, machine, {.schedule = question.at("schedule")});
  const Cut best = best_cut(model, {.replicas = true}).value();
  Json replicas = Json::array();
  for (const Stage& stage : best.stages) replicas.push_back(stage.replicas);
  return {{"replicas", replicas},
          {"best_ms", best.period_ms},
          {"straight_ms", best_cut(model, {}).value().period_ms},
          {"parallel_ms", weigh(model, {{0, model.modules(), 0, machine.devices(), 1}}).period_ms}};
});

/// {"profile", "devices", "schedule", "microbatches", "virtual_stages"}: the best plan's figures.
const Question kOutcome("outcome", [](const Json& question) -> Json {
  const Profile profile = profile_in(question);
  Request request{.machine = machine_in(question, profile)};
  request.schedules = {question.at("schedule")};
  request.microbatches = {question.at("microbatches")};
  request.virtual_stages = {question.at("virtual_stages")};
  const Outcome outcome = make_plans(profile, request).front().outcome;
  return {{"bubble", outcome.bubble},
          {"sample_ms", outcome.sample_ms},
          {"peak_bytes", outcome.peak_bytes}};
});

}  // namespace millrace::bench
