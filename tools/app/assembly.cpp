#include "tools/app/assembly.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "capture/devices.h"
#include "capture/program/cuda/cuda_module.h"
#include "engine/format.h"
#include "engine/pipeline/pinning.h"
#include "engine/trainer/trainer.h"
#include "io/queue/targets.h"
#include "io/source/source.h"
#include "stages/loss.h"
#include "stages/safetensors.h"
#include "tools/app/config/task.h"
#include "tools/app/feeds/teacher_feed.h"
#include "tools/app/intake.h"

namespace millrace::app {
namespace {

constexpr int kMostModules = 4096;  // also the most stages

/// The entry of an enumeration that is named so.
template <class Enum, std::size_t kCount>
Enum named(const char* const (&names)[kCount], const std::string& name) {
  return Enum(std::find(names, names + kCount, name) - names);
}

/// Reuses the kernels that a checkpoint's run chose by timing, for bit-identical results.
void take_kernels(const std::string& json) {
  gpu::Choices made;
  const auto kept = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!kept.is_object()) return;
  for (const auto& [task, name] : kept.items())
    if (name.is_string()) made[task] = name;
  if (const capture::CudaModule* const cuda = capture::cuda_module()) cuda->take_choices(made);
}

/// Calls `check`; turns its std::invalid_argument into a ConfigError. Most library errors name the
/// key first ("model.layer[2] (conv): ..."); for the others it is `fallback`.
template <class Check>
void check_located(const Config& config, const std::string& fallback, const Check& check) {
  try {
    check();
  } catch (const std::invalid_argument& error) {
    const std::string what = error.what(), key = what.substr(0, what.find_first_of(" :="));
    if (key.find('.') == std::string::npos) throw config.error(fallback, what);
    const std::string rest = what.substr(key.size());
    throw config.error(key, rest.substr(rest.find_first_not_of(" :")));
  }
}

/// What was learned is of classes by number: another run must name the same ones in the same order.
/// Of a weights file with other classes it keeps the weights alone.
void require_same_classes(const Config& config, Resumed& resumed) {
  const std::vector<std::string> before = classes_in(resumed.about["config"]);
  if (before.empty()) return;
  const std::vector<std::string> names = class_names(config, configured_labels(config));
  if (names.empty() || before == names) return;
  const bool resumes = !resumed.path.empty();
  if (resumes || std::ranges::is_permutation(before, names))
    throw config.error("task.classes", (resumes ? resumed.path : config.weights.file) +
                                           ": its classes are " + nlohmann::json(before).dump() +
                                           ", in this order; this run's are " +
                                           nlohmann::json(names).dump());
  resumed.about.erase("taught");
}

/// The initial weights from a checkpoint or a file; empty: initialized from the seed.
Resumed find_start(const Config& config, const stages::Network& network) {
  const CheckpointFiles checkpoints(config.checkpoint.dir);
  bool resumes = config.checkpoint.resume && checkpoints.any();
  const std::string& file = config.weights.file;
  Resumed start;
  try {
    if (resumes) start = checkpoints.read();
  } catch (const stages::WeightsError& error) {
    if (config.checkpoint.damaged == "refuse")
      throw config.error("checkpoint.resume", error.what());
    start.none_intact = true;
    start.note = error.what() + std::string("; it is set aside, and learning starts from ") +
                 (file.empty() ? "new weights" : file);
  }
  resumes = resumes && !start.none_intact;
  if (!resumes && file.empty()) return start;
  const auto refuse = [&](const std::exception& error) {
    throw config.error(resumes ? "checkpoint.resume" : "model.weights",
                       (resumes ? start.path : file) + ": " + error.what());
  };
  try {
    if (!resumes) start.state = read_checked(file, &start.about);
    require_same_classes(config, start);
    require_fit(start.state, network);
  } catch (const stages::WeightsError& error) {
    refuse(error);
  } catch (const std::invalid_argument& error) {
    refuse(error);
  }
  return start;
}

void check_cut(const Config& config, int modules) {
  if (modules > kMostModules)
    throw config.error(
        "model.preset",
        engine::format("the network has %d modules, at most %d can be cut into stages", modules,
                       kMostModules));
  const int stages = config.pipeline.stages;
  const std::vector<int>& cut = config.pipeline.cut;
  if (stages > modules)
    throw config.error("pipeline.stages",
                       engine::format("the network has %d modules, so 1 to %d stages, not %d",
                                      modules, modules, stages));
  if (cut.empty()) return;
  check_key(config, "pipeline.cut", [&] { engine::require_cut(cut, stages, modules); });
}

bool predicts_later_frame(const Config& config) {
  return task_type(config.task.kind).target == TargetFrom::later_frame;
}

const TaskType& check_task(const Config& config) {
  const TaskType& task = task_type(config.task.kind);
  const auto& keys = config.task;
  for (const TaskType& owner : task_types()) {
    if (owner.key.empty()) continue;
    const bool given = !is_default(config, owner.key), needed = owner.needs_key();
    if (given && owner.name != task.name)
      throw config.error(owner.key, "is for task.kind \"" + owner.name + "\"");
    if (!given && needed && owner.name == task.name)
      throw config.error("task.kind", task.name + " needs " + owner.key);
  }
  for (const char* key : {"task.context", "task.predict"})
    if (!predicts_later_frame(config) && !is_default(config, key))
      throw config.error(key, "is for task.kind \"next-frame\"");
  const bool live = told_live(config);
  if (live && keys.classes.empty())
    throw config.error("task.labels", "\"" + keys.labels + "\" needs task.classes: their names");
  if (!task.classes && !keys.classes.empty())
    throw config.error("task.classes", "is for task.kind \"label\" or \"mask\"");
  for (auto name = keys.classes.begin(); name != keys.classes.end(); ++name) {
    if (name->empty() || std::find(keys.classes.begin(), name, *name) != name)
      throw config.error("task.classes",
                         name->empty() ? "a name is empty" : "\"" + *name + "\" is named twice");
  }
  if (keys.with_input && task.target != TargetFrom::teller)
    throw config.error("task.with_input", "is for task.kind \"mask\" or \"stream\"");
  const bool scores = stages::Loss(keys.loss).scores();
  if (scores && !task.classes && task.target != TargetFrom::teacher)
    throw config.error("task.loss",
                       keys.loss.text() + " is of classes, for task.kind \"label\" or \"mask\"");
  if (!scores && task.pixel_classes() && !keys.with_input)
    throw config.error("task.loss", "masks are learned by cross-entropy, not " + keys.loss.text());
  for (const auto& [key, file] : {std::pair{"output.video", &config.output.video},
                                  std::pair{"output.prediction", &config.output.prediction}}) {
    const bool shown =
        task.pictures || (config.task.kind == "label" && file == &config.output.video);
    if (!shown && !file->empty())
      throw config.error(key, (task.pixel_classes() ? "masks"
                               : task.classes       ? "labels"
                                                    : "a teacher's outputs") +
                                  std::string(" are not pictures"));
  }
  return task;
}

void check_output(const Config& config, const TaskType& task, const stages::ImageShape& sample,
                  const stages::ImageShape& made) {
  stages::Loss(config.task.loss).require_fit(made.channels, made.height, made.width);
  const int before = int(channels_before(config)), told = int(made.channels) - before;
  const std::string has =
      engine::format("the network has %d", told + before) +
      (before > 0 ? engine::format(", the first %d for its input: task.with_input", before) : "");
  if (config.task.with_input && (made.height != sample.height || made.width != sample.width))
    throw std::invalid_argument(
        "the network's output must be as large as its input, which it begins with: "
        "task.with_input");
  if (task.pixel_classes() && (told < 2 || told > 255))
    throw std::invalid_argument("masks need 2 to 255 channels, one per class; " + has);
  const std::size_t named = config.task.classes.size();
  if (task.classes && named > 0 && int(named) != told)
    throw std::invalid_argument(
        engine::format("task.classes: %zu names for %d classes of the network", named, told));
  if (task.target == TargetFrom::teller && task.pictures && told != config.source.channels)
    throw std::invalid_argument(
        engine::format("the predicted stream has %d channels; ", config.source.channels) + has);
}

void check_preset(const Config& config, const std::string& preset) {
  if (preset == "partime-cnn") return;
  for (const auto& [key, plain] :
       {std::pair{"model.norm", config.model.norm == "none"},
        std::pair{"model.activation", config.model.activation == "relu"}})
    if (!plain) throw config.error(key, "applies only to partime-cnn; the preset is " + preset);
}

/// Throws unless modules can move between stages: each must have one worker.
void check_policy(const Config& config) {
  if (config.monitor.policy != "recut") return;
  if (config.pipeline.stages == 1)
    throw config.error("monitor.policy", "recut needs at least 2 stages; pipeline.stages is 1");
  if (!config.pipeline.replicas.empty())
    throw config.error("monitor.policy",
                       "recut has no replicated stages; pipeline.replicas names some");
}

/// Throws unless every stage's device supports the precision.
void check_precision(const Config& config, const engine::TrainerOptions& options) {
  const std::string& precision = config.pipeline.precision;
  const bool on_core = !std::ranges::all_of(options.devices, &engine::Device::cuda);
  if (options.numerics.precision == kernels::Precision::kFloat32 || !on_core) return;
  std::string why;
  if (options.numerics.precision == kernels::Precision::kTf32)
    why = "is for GPUs; CPU stages use float32";
  else if (!kernels::has_bf16())
    why = "needs cores with tiles (AMX); these do float32";
  else if (options.capture == engine::Capture::eager)
    why = "is for step programs; pipeline.capture is \"eager\"";
  if (!why.empty()) throw config.error("pipeline.precision", precision + " " + why);
}

/// Chooses the correction and the devices: one device for all stages of a worker, unless the config
/// names one per stage (per replica, for replicated stages).
void place(const Config& config, engine::TrainerOptions& options) {
  const engine::Schedule schedule =
      check_key(config, "pipeline.schedule", [&] { return engine::schedule_of(options); });
  choose_correction(config, schedule, options);
  check_located(config, "correction.kind", [&] { engine::require_correction(options, schedule); });
  const std::string why = engine::unrecordable(options);
  if (options.capture == engine::Capture::graph && !why.empty())
    throw config.error("pipeline.capture", "graph is not possible: " + why);
  const std::vector<std::string>& asked = config.pipeline.devices;
  const bool named = asked.size() > 1 || asked[0].find(':') != std::string::npos;
  const int workers = int(schedule.workers.size());
  check_key(config, "pipeline.devices", [&] {
    const std::vector<engine::Device> devices = engine::place_stages(
        asked, named ? schedule.replica_ids() : workers, engine::usable_cores(),
        capture::cuda_devices(), engine::threads_of_workers(options, schedule));
    const std::vector<int> worker_of = engine::workers_of_replicas(schedule);
    for (int unit = 0; unit < schedule.replica_ids(); ++unit)
      options.devices.push_back(devices[named ? unit : worker_of[unit]]);
  });
  check_located(config, "pipeline.threads", [&] { engine::require_threads(options); });
  check_precision(config, options);
}

/// model.preset, with "auto" resolved.
std::string preset_of(const Config& config) {
  if (config.model.preset != "auto") return config.model.preset;
  if (config.task.kind == "label") return "classifier";
  const bool change = predicts_later_frame(config) && config.task.predict != "frame";
  return change ? "residual-cnn" : "partime-cnn";
}

/// How many classes the config names, its labels have, or the source's folders or scenes are.
int classes_of(const Config& config) {
  std::size_t classes = class_names(config, configured_labels(config)).size();
  const std::string& uri = config.source.uri;
  if (classes == 0 && uri.starts_with("synth:"))
    classes = std::size_t(io::open_source({.uri = uri})->info().classes);
  if (classes == 0)
    throw config.error("task.classes", "names are needed for the outputs of the network");
  return int(classes);
}

/// GPUs get frames as bytes; CPU stages share memory and get floats, converted once.
void choose_frames(const Config& config, engine::TrainerOptions& options) {
  const TaskType& task = task_type(config.task.kind);
  const bool to_gpu =
      options.devices.front().cuda || (task.target_is_frame() && options.devices.back().cuda);
  // A teacher reads floats; task.with_input copies the input into the target.
  options.input_as_bytes = to_gpu && task.target != TargetFrom::teacher && !config.task.with_input;
  options.target_as_bytes = to_gpu && task.target_is_frame();
}

}  // namespace

void require_fit(const stages::StateDict& state, const stages::Network& network) {
  std::vector<stages::ParameterSpec> specs = network.parameters(0, network.size());
  std::map<const stages::ParameterSpec*, const stages::StateDict::value_type*> found;
  for (const stages::StateDict::value_type& entry : state) {
    const std::string& name = entry.first;
    const auto spec = std::ranges::find_if(specs, [&](const stages::ParameterSpec& one) {
      return one.name == name || std::ranges::find(one.also, name) != one.also.end();
    });
    if (spec != specs.end()) {
      const auto [known, is_first] = found.try_emplace(&*spec, &entry);
      if (!is_first && !known->second->second.equal(entry.second))
        throw std::invalid_argument("\"" + known->second->first + "\" and \"" + name +
                                    "\" are one parameter of the network, but differ");
      continue;
    }
    if (name.starts_with("optimizer.")) continue;
    const bool norm = name.ends_with("running_mean") || name.ends_with("running_var");
    throw std::invalid_argument("has \"" + name + "\", which is not in the network" +
                                (norm ? ": it belongs to a batch norm; the ResNets here use group "
                                        "norm, since a sample is one frame"
                                      : ""));
  }
  stages::Parameters fit(std::move(specs), at::kMeta);  // shapes, no memory
  stages::load_state(fit, state);
}

stages::ModelSpec model_of(const Config& config) {
  stages::ModelSpec model = config.model;
  model.preset = preset_of(config);
  if (model.preset == "classifier" && !config.places.contains("model.out_channels"))
    model.out_channels = classes_of(config);
  return model;
}

stages::Forecast forecast_of(const Config& config) {
  if (!predicts_later_frame(config)) return {};
  stages::Forecast forecast{config.task.context, config.task.predict == "change"};
  if (config.task.predict == "auto") {
    check_located(config, "model.preset",
                  [&] { forecast.change = !stages::ends_in_sigmoid(model_of(config)); });
  }
  if (!forecast.change && !config.places.contains("task.context")) forecast.context = 1;
  return forecast;
}

std::string replay_of(const Config& config, const stages::Network& network) {
  const std::string& asked = config.replay.kind;
  if (asked != "auto" && asked != "ridge") return asked;
  const bool by_gradients = std::ranges::any_of(config.places, [](const auto& place) {
    const std::string& key = place.first;
    return key.starts_with("optimizer.") || key.starts_with("correction.") ||
           key.starts_with("guard.");
  });
  const char* wrong = nullptr;
  if (config.task.kind != "label")
    wrong = "is for task.kind \"label\"";
  else if (config.pipeline.tensor > 1 || !config.pipeline.replicas.empty() ||
           config.source.uris.size() > 1)
    wrong = "has one process and no replicas";
  else if (!stages::ends_in_linear(network))
    wrong = "needs a network that ends in a linear layer";
  if (asked == "ridge" && wrong) throw config.error("replay.kind", "ridge " + std::string(wrong));
  return wrong || !config.weights.learn || (asked == "auto" && by_gradients) ? "none" : "ridge";
}

Config as_run(Config config, const engine::TrainerOptions& options) {
  config.replay.kind = replay_of(config, *options.network);
  if (preset_of(config) == "classifier")
    config.model.out_channels = int(options.network->output().channels);
  config.optimizer = options.optimizer;
  config.correction.kernel = options.correction.kernel;
  config.correction.weight = options.correction.weight;
  config.correction.step = options.correction.step;
  if (predicts_later_frame(config)) config.task.context = options.context;
  return config;
}

std::int64_t channels_before(const Config& config) {
  return config.task.with_input ? config.source.channels : 0;
}

bool told_live(const Config& config) {
  return config.task.labels == "http" || config.task.labels == "-";
}

void require_classes(const Config& config, const stages::Network& network, int classes) {
  const int numbers = int(network.output().channels);
  if (classes == 0) {
    throw config.error("task.kind",
                       "label needs classes: from task.labels, images:DIR with a folder for each, "
                       "or synth:shapes?scenes=4");
  }
  if (numbers != classes)
    throw config.error(
        "model.layer",
        engine::format("the network has %d outputs, the source %d classes", numbers, classes));
}

stages::ImageShape configured_shape(const Config& config) {
  return {config.source.channels, config.source.height, config.source.width};
}

stages::ImageShape sample_of(const Config& config) {
  stages::ImageShape shape = configured_shape(config);
  if (shape.width > 0 && shape.height > 0) return shape;
  const io::SourceInfo info = io::open_source({.uri = config.source.uri})->info();
  if (shape.width == 0) shape.width = info.width;
  if (shape.height == 0) shape.height = info.height;
  return shape;
}

engine::TrainerOptions assemble(const Config& config, const stages::ImageShape& shape,
                                Resumed* resumed, bool targets) {
  engine::TrainerOptions options;
  const TaskType& task = check_task(config);
  const stages::Forecast forecast = forecast_of(config);
  const bool out = config.places.contains("model.out_channels");
  stages::ModelSpec model = model_of(config);
  check_preset(config, model.preset);
  bool learns = config.weights.learn;  // by gradients
  check_located(config, out ? "model.out_channels" : "model.preset", [&] {
    const bool labels = task.name == "label" && config.places.contains("task.kind");
    const stages::Gives gives = targets && !labels ? stages::Gives::anything : task.gives;
    if (learns) {
      options.network = stages::build_network(model, shape, gives, forecast);
      learns = replay_of(config, *options.network) != "ridge";
    }
    if (!learns) {
      model.freeze = {"*"};
      options.network = stages::build_network(model, shape, gives, forecast);
    }
    check_output(config, task, shape, options.network->output());
  });
  if (const std::string& masks = config.task.masks; !masks.empty())
    check_key<io::MaskError>(config, "task.masks", [&] { io::require_masks(masks); });
  if (!config.task.teacher.empty() && shape.width > 0 && shape.height > 0)
    Teacher(config, shape, options.network->output());
  check_cut(config, options.network->size());
  check_policy(config);
  options.sample = {shape.channels * forecast.context, shape.height, shape.width};
  options.context = forecast.context;
  options.target_is_input = task.target == TargetFrom::input && !targets;
  options.loss = config.task.loss;
  static_cast<engine::ScheduleSpec&>(options) = config.pipeline;
  options.capture = config.pipeline.capture == "graph"   ? engine::Capture::graph
                    : config.pipeline.capture == "eager" ? engine::Capture::eager
                                                         : engine::Capture::automatic;
  options.numerics = {
      .method = named<kernels::Method>(kernels::kMethodNames, config.pipeline.convolution),
      .precision = named<kernels::Precision>(kernels::kPrecisionNames, config.pipeline.precision),
      .tuned = config.pipeline.kernels == "tuned"};
  options.cut = config.pipeline.cut;
  options.threads = config.pipeline.threads;
  if (options.threads.size() == 1)
    options.threads.resize(std::size_t(options.stages), options.threads[0]);
  options.may_recut = config.monitor.policy == "recut";
  options.optimizer = config.optimizer;
  options.correction = learns ? config.correction : stages::CorrectionSpec();
  options.guard = learns && config.guard.kind == "roll-back";
  place(config, options);
  choose_frames(config, options);
  require_memory(config, options);
  options.seed = config.weights.seed;
  Resumed start = find_start(config, *options.network);
  options.weights = std::move(start.state);
  if (!start.path.empty()) take_kernels(start.about["kernels"]);
  if (resumed) *resumed = std::move(start);
  return options;
}

}  // namespace millrace::app
