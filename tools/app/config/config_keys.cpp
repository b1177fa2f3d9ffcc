// Each key is an entry in this table and a member of Config with its default.
#include "tools/app/config/config_keys.h"

#include <algorithm>

#include "capture/program/kernels/kernels.h"
#include "engine/monitor/overload.h"
#include "engine/schedule/registry.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/schedule_csv.h"
#include "io/queue/resizer.h"
#include "io/source/source.h"
#include "stages/loss.h"
#include "tools/app/config/task.h"
#include "tools/app/plugins/plugin.h"
#include "tools/app/plugins/plugins.h"

namespace millrace::app {
namespace {

constexpr double kMany = 1e12;

Range from(double least, double most) {
  return {.least = least, .most = most};
}

/// Polygons that are not closed or leave the picture are refused later, with a better message.
Range zones() {
  return {.text =
              "a list of polygons [[x, y], ...] or {points = [[x, y], ...], name, sensitivity}"};
}

Range one_of(std::vector<std::string> names) {
  return {.choices = std::move(names)};
}

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.push_back(entry.name);
  return names;
}

/// Sizes of a kernel that padding can centre.
Range kernel_side() {
  return {
      .least = 1, .most = 63, .text = "an odd whole number from 1 to 63", .fits = [](Place side) {
        return *std::get<int*>(side) % 2 == 1;
      }};
}

Range channels() {
  return {.least = 1, .most = 3, .text = "1 or 3", .fits = [](Place count) {
            return *std::get<int*>(count) != 2;
          }};
}

Range rectangle() {
  return {.most = 16384,
          .text = "[x, y, w, h] in pixels, w and h above 0, or []",
          .fits = [](Place place) {
            const auto& roi = *std::get<std::vector<int>*>(place);
            return roi.empty() || (roi.size() == 4 && roi[2] > 0 && roi[3] > 0);
          }};
}

Range patterns() {
  return {.text = "a list of patterns as [\"layer1.*\"]", .fits = [](Place place) {
            const auto& list = *std::get<std::vector<std::string>*>(place);
            return std::find(list.begin(), list.end(), "") == list.end();
          }};
}

Range presets() {
  std::vector<std::string> names = stages::preset_names();
  names.insert(names.begin(), "auto");
  return one_of(names);
}

Range schedules() {
  return {.choices = engine::schedule_names(),
          .text = choices_text(engine::schedule_names()) + " or a .csv file",
          .or_if = engine::is_schedule_file};
}

Range corrections() {
  std::vector<std::string> names = stages::correction_names();
  names.push_back("auto");
  return one_of(names);
}

Range losses() {
  const std::vector<std::string> names = names_of(stages::loss_types());
  return {.choices = names,
          .text = choices_text(names) +
                  ", or a list of these or of tables as {kind = \"mse\", weight = 0.5}"};
}

Range devices() {
  return {.text = "\"auto\", \"cpu\", \"cuda\" or a list as [\"cpu:0\", \"cuda:0\"]",
          .single = true,
          .fits = [](Place place) {
            const auto& names = *std::get<std::vector<std::string>*>(place);
            const auto& one = names.size() == 1 ? names[0] : "";
            return one == "auto" || one == "cpu" || one == "cuda" ||
                   (!names.empty() && std::ranges::all_of(names, [](const std::string& name) {
                     return name.find(':') != name.npos;
                   }));
          }};
}

Range threads() {
  return {.least = 1,
          .most = 1024,
          .text = "a whole number from 1 to 1024, a list of them, or \"auto\"",
          .single = true,
          .automatic = 0,
          .fits = [](Place place) {
            const auto& counts = *std::get<std::vector<int>*>(place);
            return counts.size() == 1 || (!counts.empty() && std::ranges::count(counts, 0) == 0);
          }};
}

Range share() {
  return {.least = 0, .most = 0.99, .text = "\"auto\" or a number from 0 to 0.99", .automatic = -1};
}

/// "NAME: what it is; NAME: what it is".
template <class Table, class Name, class What>
std::string described(const Table& table, Name name, What what) {
  std::string text;
  for (const auto& entry : table)
    text += (text.empty() ? "" : "; ") + std::string(entry.*name) + ": " + entry.*what;
  return text;
}

// KEY_AT is for keys whose path differs from the member.
#define KEY(member, range, meaning) KEY_AT(#member, member, range, meaning)
#define KEY_AT(path, member, range, meaning)                           \
  ConfigKey {                                                          \
    path, range, meaning, [](Config& c) -> Place { return &c.member; } \
  }

std::vector<ConfigKey> make_table() {
  return {
      KEY(plugins, {},
          "shared objects that add layers, losses, sources and sinks: code, so load only what you "
          "trust"),
      KEY(source.uri, {.text = "a path or URI"},
          described(io::source_kinds(), &io::SourceKind::example, &io::SourceKind::summary)),
      KEY(source.uris, {},
          "under mpirun: one URI for each of several pipelines that train one network, each read "
          "where the pipeline's first rank runs; empty: one pipeline, source.uri"),
      KEY(source.pace, one_of({"auto", "live", "asap"}),
          "live: at the stream's own rate; asap: as fast as the pipeline takes frames; auto: live "
          "for live sources, asap for files"),
      KEY(source.drop, one_of({"auto", "newest", "never"}),
          "newest: keep the newest frame, count the rest as dropped; never: block the source; "
          "auto: newest when paced live, else never"),
      KEY(source.width, from(0, 16384), "pixels; 0: the source's own"),
      KEY(source.height, from(0, 16384), "pixels; 0: the source's own"),
      KEY(source.fit, one_of(io::fit_names()),
          "how a picture of another shape is made width x height; stretch: squash it; crop: keep "
          "the centre; pad: keep all of it, between black bars"),
      KEY(source.roi, rectangle(), "part of each picture to use; empty: all of it"),
      KEY(source.channels, channels(), "3: RGB, 1: grey"),
      KEY(source.fps, from(0, 10000), "rate of sources that have none (images, synth); 0: 25"),
      KEY(source.loop, {}, "start again at the end"),
      KEY(source.seed, from(0, kMany), "synth: which scene; images by class: their order"),
      KEY(source.reconnect, {}, "reopen a live source that breaks off or falls silent"),
      KEY(source.silence_s, from(0.1, 3600),
          "seconds without a picture after which a live source counts as broken off"),
      KEY(source.max_pixels, from(1, kMany),
          "pixels of a picture that may be decoded; a larger one counts as a disconnect"),
      KEY(task.kind, one_of(names_of(task_types())),
          described(task_types(), &TaskType::name, &TaskType::meaning)),
      KEY(task.loss, losses(),
          described(stages::loss_types(), &stages::LossType::name, &stages::LossType::summary) +
              "; a list: their sum, as [{kind = \"mse\"}, {kind = \"ssim\", weight = 0.5}]; "
              "cross-entropy takes label_smoothing, each takes channels = [FIRST, COUNT]"),
      KEY(task.horizon, from(1, 1000), "next-frame: frames from the input to the predicted frame"),
      KEY(task.context, from(1, 64),
          "next-frame: frames that the network sees, the latest one's channels last; unset: 1 for "
          "a network that predicts the frame itself"),
      KEY(task.predict, one_of({"auto", "change", "frame"}),
          "next-frame: change: the network's output is added to the latest frame; frame: it is the "
          "frame; auto: frame for networks that end in a sigmoid, else change"),
      KEY(task.labels, {},
          "label: a CSV of classes, its first line \"frame,class\" or \"time,class\" (seconds), or "
          "JSON lines as {\"frame\": 17, \"class\": \"day\"}; \"http\": POSTed to the page's "
          "/label, or by mqtt.broker; \"-\": standard input"),
      KEY(task.classes, {}, "names of classes, from class 0 on: for labels and masks"),
      KEY(task.masks, {},
          "mask: a folder of grey pictures as large as the frames; 00017.png is frame 17's mask, a "
          "pixel's value its class, 255 no class"),
      KEY(task.stream, {}, "stream: the URI of the stream to predict, as source.uri"),
      KEY(task.teacher, {},
          "teacher: the network to learn from: a .pt file from millrace.export, or weights of this "
          "config's own network, .safetensors"),
      KEY(task.with_input, {},
          "mask, stream: predict the input as well, by the network's first channels"),
      KEY(model.preset, presets(),
          "auto: residual-cnn where a change is predicted, classifier for labels, else "
          "partime-cnn; layers: as written in [[model.layer]]; file: model.file"),
      KEY(model.layers, from(1, 1000), "partime-cnn, residual-cnn: convolutions"),
      KEY(model.features, from(1, 4096),
          "partime-cnn, residual-cnn: channels between convolutions"),
      KEY(model.kernel, kernel_side(), "partime-cnn, residual-cnn: side of a convolution's kernel"),
      KEY(model.norm, one_of({"none", "instance", "group"}),
          "partime-cnn: normalization between a convolution and its activation"),
      KEY(model.activation, one_of({"relu", "leaky-relu"}),
          "partime-cnn: after each convolution but the last"),
      KEY(model.slope, from(0, 1), "leaky-relu: slope below 0"),
      KEY(model.out_channels, from(1, 4096),
          "channels of the prediction; unset: as source.channels; classifier: as many as classes"),
      KEY(model.file, {},
          "file: a network from PyTorch, as python -m millrace.export writes it; TorchScript, and "
          "so code: load only what you would run"),
      KEY(model.freeze, patterns(),
          "frozen parameters by name, * matches anything; they cost no gradient, no optimizer "
          "state and no time"),
      KEY_AT(
          "model.memory_format", model.channels_last, one_of({"contiguous", "channels_last"}),
          "layout of samples and activations in eager steps; on CPU cores channels_last is faster "
          "for kernels up to 5 and far slower for large ones; step programs always use it"),
      KEY_AT("model.weights", weights.file, {}, "a .safetensors file to start from"),
      KEY_AT("model.learn", weights.learn, {},
             "false: freeze the weights: predict and detect novelty only"),
      KEY_AT("model.seed", weights.seed, from(0, kMany), "initial weights, as torch.manual_seed"),
      KEY(pipeline.schedule, schedules(),
          "the order of the workers' actions, and so the update rule; a .csv: as "
          "torch.distributed.pipelining writes it"),
      KEY(pipeline.stages, from(1, 4096), "stages the network is cut into"),
      KEY(pipeline.cut, from(0, 1'000'000),
          "modules where stages 1.. begin; empty: balanced by measured times"),
      KEY(pipeline.devices, devices(), "where stages run; a list names one per stage"),
      KEY(pipeline.threads, threads(),
          "cores that share each operation of a stage's step program, one thread each; a list "
          "names them by stage; auto: measured at the start, as many as make the slowest stage "
          "fastest. Results do not depend on it"),
      KEY(pipeline.microbatches, from(1, 65536),
          "samples per minibatch, in schedules that have minibatches"),
      KEY(pipeline.virtual_stages, from(1, 1024), "interleaved: stages per worker"),
      KEY(pipeline.vertical_sync, {},
          "pipedream: every stage uses the weight version that stage 0 used"),
      KEY(pipeline.replicas, from(1, 1024),
          "pipedream: workers that share each stage and take samples in turn; empty: 1 everywhere"),
      KEY(pipeline.ranks, from(0, 4095),
          "under mpirun: the rank of each worker; empty: workers are assigned to ranks in order"),
      KEY(pipeline.tensor, from(1, 64),
          "under mpirun: ranks that share each worker's convolutions and linear layers"),
      KEY(pipeline.recompute, {},
          "keep only a sample's input and recompute the forward before the backward: less memory, "
          "more time"),
      KEY(pipeline.capture, one_of({"auto", "graph", "eager"}),
          "graph: record each step once and replay it, as a CUDA Graph or, on a core, a step "
          "program, which equals eager within rounding; eager: operator by operator, on a core "
          "PyTorch's own bits; auto: graph where a step can be recorded and a core has vector "
          "instructions"),
      KEY(pipeline.convolution,
          one_of({std::begin(kernels::kMethodNames), std::end(kernels::kMethodNames)}),
          "kernels of step programs: accurate: FFT and Winograd where they are faster, with "
          "rounding like PyTorch's (at most 2.4 times); fast: also Winograd with errors to 3e-5; "
          "direct: sums of products alone"),
      KEY(pipeline.precision,
          one_of({std::begin(kernels::kPrecisionNames), std::end(kernels::kPrecisionNames)}),
          "of the products in convolutions and linear layers, where the device has them; weights, "
          "sums and updates stay float32"),
      KEY(pipeline.kernels, one_of({"tuned", "fixed"}),
          "a GPU's: tuned: timed once on the device; fixed: chosen by shape"),
      KEY(optimizer.kind, one_of(stages::optimizer_names()), "as in torch.optim"),
#define OPTIMIZER_KEY(name, fallback, least, most, meaning) \
  KEY(optimizer.name, from(least, most), meaning),
      MILLRACE_OPTIMIZER_KEYS(OPTIMIZER_KEY)
#undef OPTIMIZER_KEY
          KEY(optimizer.orthogonal, from(0, 0.9999999),
              "orthogonal gradients: each weight tensor's gradient loses its projection on the "
              "running mean of those before, which decays by this; 0: off"),
      KEY(optimizer.schedule, one_of({"constant", "step", "cosine"}),
          "how the rate changes from update to update, as torch.optim.lr_scheduler's StepLR and "
          "CosineAnnealingLR, whose rate rises again after T_max"),
      KEY(optimizer.step_size, from(1, kMany), "step: updates from one rate to the next"),
      KEY(optimizer.gamma, from(0, 1), "step: the next rate over the one before"),
      KEY(optimizer.T_max, from(1, kMany), "cosine: updates from the largest rate to the smallest"),
      KEY(optimizer.eta_min, from(0, 1000), "cosine: the smallest rate"),
      KEY(optimizer.warmup, from(0, kMany),
          "updates in which the rate rises to lr, as LinearLR's total_iters, before the schedule "
          "begins; 0: none; unset, a network of changes whose optimizer is the default has 50"),
      KEY(optimizer.start_factor, from(0, 1), "warmup: initial rate, as a fraction of lr"),
      KEY(correction.kind, corrections(),
          "what to do about old gradients; none: the schedule's own update rule; auto: none where "
          "gradients are fresh; else deep-supervision for a network of changes, or of pictures "
          "with adam, where it fits, and for others inverse-age; unless optimizer.beta1 is set, it "
          "is 0.7 for changes, 0.8 for autoencode, 0.5 for other pictures, 0 with inverse-age"),
      KEY(correction.anneal, from(1, kMany), "pipemare: updates until the full rate is reached"),
      KEY(correction.lambda, from(0, 1000), "dc-asgd: strength"),
      KEY(correction.decay, from(0.000001, 1),
          "discrepancy: share of a change of the weights that is left after a delay"),
      KEY(correction.kernel, kernel_side(),
          "local, deep-supervision: side of the auxiliary heads' kernel; what auto takes has 3 "
          "unless that is set"),
      KEY(correction.rate, from(0, 1000),
          "local, deep-supervision: the auxiliary heads' rate over the stage's"),
      KEY(correction.weight, from(0, 1000),
          "deep-supervision: weight of downstream's gradient beside the head's, over the square "
          "root of 1 + its age"),
      KEY(correction.step, from(0, 1000),
          "deep-supervision: factor on optimizer.lr; what auto takes has 1.5 for a network of "
          "changes that learns by adam unless one of the two is set"),
      KEY(correction.inputs, one_of({"uint8", "float32"}),
          "deep-supervision: form of the inputs that stages recompute from; uint8: copies, each "
          "line of a map in 255 steps of its range, a quarter of the memory; float32: the inputs "
          "themselves, as always if a stage is on a GPU"),
      KEY(guard.kind, one_of({"none", "roll-back"}),
          "roll-back: if the loss diverges, which a change of scene does not, go back to the last "
          "good weights and learn more slowly for a while"),
      KEY(replay.kind, one_of({"auto", "none", "recent", "reservoir", "hard", "ridge"}),
          "how earlier samples stay learned; recent, reservoir, hard: learns again from the "
          "latest, a uniform choice of all so far, those with a large loss, while the stream "
          "leaves time; ridge: for labels, remembers frames of each class and solves the last "
          "linear layer for them, the other weights stay; auto: ridge for labels if the network "
          "ends in a linear layer and the config names no optimizer, correction or guard; else "
          "none"),
      KEY(replay.size, from(1, 1 << 24), "samples kept in memory"),
      KEY(replay.share, share(),
          "share of replayed samples among all that are learned from; auto: as many as real time "
          "leaves room for; a live stream never gets more than that"),
      KEY(monitor.fps, from(0, 100000), "F of the rule T/N < 1/F; 0: the source's own"),
      KEY(monitor.policy, one_of(engine::policy_names()),
          "what to do if the stream outruns the slowest stage; drop: keep the newest frame; skip: "
          "predict every frame, learn from every k-th; recut: measure again and move the cut"),
      KEY(novelty.threshold, from(0, 1000),
          "deviation from which a picture is unexpected; 8: half as sensitive as 4; 0: 4"),
      KEY(novelty.minimum, from(1, 1000),
          "unexpected looks in a row that make an event (at a place at least 3); ten to twenty a "
          "second, or each frame if fewer come"),
      KEY(novelty.cooldown, from(0, 1e9),
          "seconds of the stream after an event in which none begins"),
      KEY(novelty.reasons, one_of({std::begin(kReasonNames), std::end(kReasonNames)}),
          "what raises an event: something at a place; the picture as a whole, a frozen picture, a "
          "covered or moved camera, light switched on or off, a camera that is gone"),
      KEY(novelty.zones, zones(),
          "where events at a place count; a zone is a polygon [[x, y], ...] in shares of the "
          "picture's width and height, or {name = \"door\", points = [[x, y], ...], sensitivity = "
          "2}; empty: everywhere"),
      KEY(novelty.ignore, zones(), "where nothing counts: polygons, as novelty.zones"),
      KEY(novelty.snapshots, {},
          "folder for a picture of each event of unexpected frames; empty: none"),
      KEY(novelty.clip_seconds, from(0, 60),
          "with novelty.snapshots: seconds before and after an event's first frame that are kept "
          "as a video; 0: none"),
      KEY(novelty.webhook, {},
          "http://[USER:PASSWORD@]HOST[:PORT][/PATH]: each event is posted there as JSON; empty: "
          "none"),
      KEY(novelty.mqtt, {},
          "mqtt://[USER:PASSWORD@]HOST[:PORT]: each event is published there; empty: none"),
      KEY(novelty.topic, {}, "topic that novelty.mqtt publishes to"),
      KEY(mqtt.broker, {},
          "mqtt://[USER:PASSWORD@]HOST[:PORT]: the run's state is published there each second, and "
          "commands are accepted; empty: none"),
      KEY(mqtt.topic_prefix, {}, "of the topics state, availability, event and control"),
      KEY(mqtt.discovery_prefix, {}, "Home Assistant's discovery prefix; empty: no discovery"),
      KEY(checkpoint.dir, {}, "folder for checkpoints; empty: none"),
      KEY(checkpoint.every, from(0, kMany), "frames between checkpoints; 0: only at the end"),
      KEY(checkpoint.resume, {}, "resume from the checkpoint in checkpoint.dir, if there is one"),
      KEY(checkpoint.damaged, one_of({"set-aside", "refuse"}),
          "what to do if no checkpoint is intact; set-aside: rename it and start from "
          "model.weights or anew; refuse: end the run with 2"),
      KEY(output.report, {}, "the report, .json"),
      KEY(output.weights, {}, "final weights, .safetensors"),
      KEY(output.loss_plot, {}, "the loss curve, .png"),
      KEY(output.prediction, {},
          "input, target and prediction of the last frame side by side, .png"),
      KEY(output.video, {},
          "prediction beside input, .mp4 or .mkv, or served at "
          "rtsp://[USER:PASSWORD@]ADDRESS:PORT/PATH"),
      KEY(output.log, {},
          "a line of JSON for every output.log_every-th frame, appended during the run; \"-\": "
          "stdout, and the summary then goes to stderr"),
      KEY(output.log_every, from(1, kMany), "frames from one line of output.log to the next"),
      KEY(output.sinks, {},
          std::string("plug-ins' sinks, each as \"NAME:ARGUMENT\"") +
              (sink_types().empty() ? "" : "; ") +
              described(sink_types(), &SinkType::name, &SinkType::summary)),
  };
}

#undef KEY
#undef KEY_AT

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  // Rebuilt when plug-ins have added names that a key can have.
  static int made_of = plugins_loaded();
  static std::vector<ConfigKey> table = make_table();
  if (made_of != plugins_loaded()) {
    made_of = plugins_loaded();
    table = make_table();
  }
  return table;
}

}  // namespace millrace::app
