#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>

#include "engine/plan/cost_model.h"
#include "engine/plan/machine.h"
#include "engine/plan/plan.h"
#include "engine/plan_files/profile_json.h"
#include "engine/schedule/registry.h"
#include "engine/schedule/schedule_csv.h"
#include "engine/schedule/verifier.h"
#include "engine/simulate/simulator.h"
#include "engine/simulate/timeline.h"

namespace millrace::python {
namespace {

namespace py = pybind11;
using engine::Schedule;

Schedule named(const std::string& name, int stages, int microbatches, int virtual_stages,
               bool vertical_sync, const std::vector<int>& replicas, bool recompute) {
  return engine::make_schedule(
      {name, stages, microbatches, virtual_stages, vertical_sync, replicas, recompute});
}

Schedule parsed(const std::string& csv) {
  try {
    return engine::parse_schedule_csv(csv);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("schedule: " + std::string(error.what()));
  }
}

void require_sound(const Schedule& schedule) {
  if (const auto fault = engine::verify(schedule))
    throw std::invalid_argument(fault->text(schedule.name));
}

std::vector<std::vector<std::string>> rows(const Schedule& schedule, std::int64_t samples) {
  std::vector<std::vector<std::string>> all;
  for (const auto& row : engine::draw_staircase(schedule, samples).rows) {
    all.emplace_back();
    for (const auto& cell : row) all.back().push_back(cell ? cell->text(true) : "");
  }
  return all;
}

py::dict simulate(const Schedule& schedule, std::int64_t samples,
                  const std::vector<double>& forward, const std::vector<double>& backward,
                  const std::vector<double>& update, double message_bytes, double link_ms,
                  double bytes_per_ms, int cores, double fps) {
  require_sound(schedule);
  engine::SimulationInput input{.samples = samples > 0 ? samples : engine::enough_samples(schedule),
                                .cores = cores,
                                .source_period_ms = fps > 0 ? 1e3 / fps : 0.0,
                                .events = true};
  input.machine.levels = {{int(schedule.workers.size()), {link_ms, bytes_per_ms}}};
  const engine::GivenCosts costs{.forward = forward,
                                 .update = update,
                                 .backward = backward,
                                 .bytes = {.activation = message_bytes, .gradient = message_bytes}};
  input.stages = costs.of(schedule.stages);
  const engine::Simulation s = engine::simulate(schedule, input);
  py::list events;
  for (const engine::SimulatedAction& e : s.events)
    events.append(
        py::make_tuple(e.worker, engine::action_text(e.action, true), e.start_ms, e.end_ms()));
  using namespace py::literals;
  return py::dict("samples"_a = s.samples, "dropped"_a = s.dropped, "total_ms"_a = s.total_ms,
                  "period_ms"_a = s.period_ms, "fps"_a = s.fps(), "bubble"_a = s.bubble(),
                  "utilisation"_a = s.utilisation(), "latency_p50_ms"_a = s.latency_p50_ms,
                  "latency_max_ms"_a = s.latency_max_ms, "gradient_age"_a = s.gradient_age,
                  "events"_a = events);
}

py::list plan(const std::string& profile_json, const std::string& devices, const std::string& links,
              const std::string& overlap, const std::vector<std::string>& schedules,
              const std::vector<int>& microbatches, double memory_bytes, double fps, int stages,
              bool recompute) {
  namespace plan = engine::plan;
  const plan::Profile profile = plan::profile_from_json(profile_json, "profile");
  plan::Request request;
  request.machine = plan::parse_machine(devices, links, overlap, memory_bytes, profile);
  request.schedules = schedules;
  request.microbatches = microbatches;
  request.fps = fps;
  request.stages = stages;
  request.recompute = recompute;
  py::list all;
  using namespace py::literals;
  for (const plan::Plan& one : plan::make_plans(profile, request)) {
    all.append(
        py::dict("schedule"_a = one.method.schedule, "microbatches"_a = one.method.microbatches,
                 "recompute"_a = one.method.recompute, "cut"_a = plan::begins_of(one.cut.stages),
                 "stages"_a = int(one.cut.stages.size()), "sample_ms"_a = one.outcome.sample_ms,
                 "frames_a_second"_a = one.outcome.frames_a_second, "bubble"_a = one.outcome.bubble,
                 "latency_ms"_a = one.outcome.latency_ms, "peak_bytes"_a = one.outcome.peak_bytes,
                 "gradient_age"_a = one.outcome.gradient_age));
  }
  return all;
}

}  // namespace

void bind_schedules(py::module_& m) {
  using namespace py::literals;
  py::class_<Schedule>(m, "Schedule")
      .def(py::init(&named))
      .def(py::init(&parsed))
      .def_readonly("name", &Schedule::name)
      .def_readonly("stages", &Schedule::stages)
      .def_property_readonly("workers", [](const Schedule& s) { return s.workers.size(); })
      .def("verify", &require_sound, py::call_guard<py::gil_scoped_release>(),
           "Raises millrace.Error with the first thing wrong: a deadlock, a gradient of another "
           "sample, a weight version that is no longer kept, a slot that can be overwritten, ...")
      .def("actions", &rows, "samples"_a = 8,
           "By worker and tick, each action taking one tick: \"2F0\", with \"U\" appended if an "
           "update follows, \"\" for a bubble.")
      .def(
          "bubble",
          [](const Schedule& s, std::int64_t n) { return engine::draw_staircase(s, n).bubble(); },
          "samples"_a = 8, "The share of idle ticks in `staircase(samples)`.")
      .def(
          "gradient_age", [](const Schedule& s) { return engine::gradient_ages(s); },
          "By stage, in the steady state: frames between the sample that made a gradient and the "
          "sample it is applied on.")
      .def("_simulate", &simulate);
  m.def("schedule_names", &engine::schedule_names);
  m.def("plan", &plan);
}

}  // namespace millrace::python
