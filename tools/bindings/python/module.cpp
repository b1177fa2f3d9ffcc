#include <ATen/ATen.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <atomic>

#include "tools/app/assembly.h"
#include "tools/app/given_run.h"

namespace millrace::python {

void bind_schedules(pybind11::module_& m);  // schedules.cpp

namespace {

namespace py = pybind11;

/// Releases the GIL while it lives. When Python ends, its daemon threads unwind at the point where
/// they take the GIL again, which terminates the process if a destructor is running. After
/// leave_at_exit() they block here until the process is gone.
class GilRelease {
 public:
  GilRelease() : thread_(PyEval_SaveThread()) {
    if (!in_main_thread()) others_.store(true, std::memory_order_relaxed);
  }
  ~GilRelease() noexcept(false) {
    while (ending_.load() && !in_main_thread()) pause();
    PyEval_RestoreThread(thread_);
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

  /// Called by the main thread with the GIL when Python ends: gives daemon threads time to get
  /// here.
  static void leave_at_exit() {
    ending_.store(true);
    if (!others_.load(std::memory_order_relaxed)) return;
    const GilRelease they_run;
    usleep(200'000);
  }

 private:
  static bool in_main_thread() { return gettid() == getpid(); }

  static inline std::atomic<bool> ending_{false}, others_{false};
  PyThreadState* const thread_;
};

/// An array that owns `tensor`.
py::array_t<float> array_of(at::Tensor tensor) {
  auto* const kept = new at::Tensor(std::move(tensor));
  const py::capsule owner(kept, [](void* p) { delete static_cast<at::Tensor*>(p); });
  return py::array_t<float>(kept->sizes().vec(), kept->const_data_ptr<float>(), owner);
}

/// A config file ("": none) with settings (key, TOML) on top. Errors name no command line.
app::Config make_config(const std::string& file,
                        const std::vector<std::pair<std::string, std::string>>& settings) {
  app::Config config = app::load_config(file, {});
  for (const auto& [key, value] : settings) config.set(key, value);
  return config;
}

py::list weights_of(const app::GivenRun& run) {
  py::list all;
  for (auto& [name, tensor] : run.weights())
    all.append(py::make_tuple(name, array_of(std::move(tensor))));
  return all;
}

using FloatArray = py::array_t<float, py::array::c_style | py::array::forcecast>;

void set_weights(app::GivenRun& run,
                 const std::vector<std::pair<std::string, FloatArray>>& arrays) {
  stages::StateDict weights;
  for (const auto& [name, array] : arrays) {
    const at::IntArrayRef shape(array.shape(), std::size_t(array.ndim()));
    weights.emplace_back(name, at::from_blob(const_cast<float*>(array.data()), shape).clone());
  }
  const GilRelease engine_works;
  run.set_weights(weights);
}

/// (index, frame, loss, prediction, latency in ms, picture or None, novelty, event), or None after
/// `ms` without a result.
py::object next_result(app::GivenRun& run, int ms) {
  std::optional<app::GivenResult> result;
  {
    const GilRelease engine_works;
    result = run.next(std::chrono::milliseconds(ms));
  }
  if (!result) return py::none();
  const std::chrono::duration<double, std::milli> latency = engine::Clock::now() - result->given;
  py::object picture = py::none();
  if (result->picture.defined()) picture = array_of(std::move(result->picture));
  return py::make_tuple(result->index, result->frame, result->loss,
                        array_of(std::move(result->prediction)), latency.count(), picture,
                        result->novelty, result->event);
}

/// (frame, its class or -1); (): no frame within `ms`; None: the stream is over.
py::object next_frame(app::GivenFrames& frames, int ms) {
  std::optional<app::GivenFrame> frame;
  {
    const GilRelease others_work;
    frame = frames.next(std::chrono::milliseconds(ms));
  }
  if (!frame) return frames.over() ? py::object(py::none()) : py::object(py::tuple());
  return py::make_tuple(array_of(std::move(frame->input)), frame->label);
}

/// Turns library errors into millrace.Error, on one line. Passes Python's own on.
void translate(std::exception_ptr thrown) {
  static const py::handle error =
      py::object(py::module_::import("millrace._error").attr("Error")).release();
  try {
    std::rethrow_exception(thrown);
  } catch (const py::error_already_set&) {
    throw;
  } catch (const py::builtin_exception&) {
    throw;
  } catch (const std::exception& failure) {
    std::string what = failure.what();
    what = what.substr(0, what.find('\n'));
    // Cuts "--set " and "(default): ": here the key was an argument.
    if (what.starts_with("--set ")) what = what.substr(6);
    if (what.starts_with("(default): ")) what = what.substr(what.find(": ") + 2);
    const auto text = py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefault(what.c_str()));
    PyErr_SetObject(error.ptr(), text.ptr());
  }
}

}  // namespace

PYBIND11_MODULE(_millrace, m) {
  py::register_local_exception_translator(translate);
  py::module_::import("atexit").attr("register")(py::cpp_function(&GilRelease::leave_at_exit));
  py::class_<app::Config>(m, "Config")
      .def(py::init(&make_config))
      .def_property_readonly("task", [](const app::Config& c) { return c.task.kind; })
      .def_property_readonly(
          "classes",
          [](const app::Config& c) { return app::class_names(c, app::configured_labels(c)); })
      .def_property_readonly("loss", [](const app::Config& c) { return c.task.loss.text(); })
      .def_property_readonly("fps", [](const app::Config& c) { return c.monitor.fps; })
      .def_property_readonly("context",
                             [](const app::Config& c) { return app::forecast_of(c).context; });
  m.def("config_keys", [] {
    std::vector<std::string> names = {"model.layer"};
    for (const app::KeyEntry& key : app::key_entries()) names.push_back(key.path);
    return names;
  });
  m.def("check", &app::check_modules);
  py::class_<app::GivenFrames>(m, "GivenFrames")
      .def(py::init<const app::Config&>())
      .def("next", &next_frame)
      .def_property_readonly("fps", &app::GivenFrames::fps)
      .def_property_readonly("live", &app::GivenFrames::live)
      .def_property_readonly("segment", &app::GivenFrames::segment)
      .def_property_readonly("time", &app::GivenFrames::time)
      .def("lost", &app::GivenFrames::lost);
  py::class_<app::GivenRun>(m, "GivenRun")
      .def(py::init([](const app::Config& config, const std::array<std::int64_t, 3>& s,
                       bool targets, bool live) {
        const GilRelease engine_works;
        return std::make_unique<app::GivenRun>(config, stages::ImageShape{s[0], s[1], s[2]},
                                               targets, live);
      }))
      .def("start", &app::GivenRun::start, py::call_guard<GilRelease>())
      .def("give",
           [](app::GivenRun& run, std::uintptr_t input, std::uintptr_t target, double time,
              std::int64_t segment) {
             const GilRelease engine_works;
             return run.give(reinterpret_cast<const float*>(input),
                             reinterpret_cast<const float*>(target), time, segment);
           })
      .def("lose", &app::GivenRun::lose)
      .def("end", &app::GivenRun::end)
      .def("stop", &app::GivenRun::stop)
      .def("next", &next_result)
      .def("over", &app::GivenRun::over)
      .def("prediction_shape",
           [](const app::GivenRun& run) {
             const stages::ImageShape shape = run.prediction_shape();
             return std::array{shape.channels, shape.height, shape.width};
           })
      .def("frames_an_update", &app::GivenRun::frames_an_update)
      .def("gradient_age", &app::GivenRun::gradient_age)
      .def("weights", &weights_of)
      .def("set_weights", &set_weights)
      .def("report", &app::GivenRun::report, py::call_guard<GilRelease>())
      .def("remarks", &app::GivenRun::remarks, py::call_guard<GilRelease>());
  bind_schedules(m);
}

}  // namespace millrace::python
