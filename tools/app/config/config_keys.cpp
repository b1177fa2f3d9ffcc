#include "tools/app/config/config_keys.h"

#include <algorithm>  // find

#include "engine/monitor/overload.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/schedule_csv.h"
#include "io/queue/resizer.h"
#include "io/source/source.h"
#include "io/source/uri.h"
#include "stages/loss.h"
#include "tools/app/config/key_kinds.h"
#include "tools/app/config/replay.h"
#include "tools/app/config/task.h"
#include "tools/app/plugins/plugin.h"
#include "tools/app/plugins/plugins.h"

namespace millrace::app {
namespace {

bool read_share(const toml::node& node, double& share) {
  if (node.value_exact<std::string>() == "auto") {
    share = -1;
    return true;
  }
  const auto value = node.is_number() ? node.value<double>() : std::nullopt;
  if (!value || !(*value >= 0 && *value <= 0.99)) return false;
  share = *value;
  return true;
}

/// The side of a kernel that padding can centre.
bool read_odd(const toml::node& node, int& side) {
  const auto value = node.value_exact<std::int64_t>();
  if (!value || *value < 1 || *value > 63 || *value % 2 == 0) return false;
  side = int(*value);
  return true;
}

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.push_back(entry.name);
  return names;
}

/// "NAME: what it is; NAME: what it is".
template <class Table, class Entry>
std::string described(const Table& table, std::string Entry::*what) {
  std::string text;
  for (const Entry& entry : table)
    text += (text.empty() ? "" : "; ") + entry.name + ": " + entry.*what;
  return text;
}

std::vector<std::string> correction_choices() {
  std::vector<std::string> names = stages::correction_names();
  names.push_back("auto");
  return names;
}

/// A choice that may also be a file.
template <class Access>
ConfigKey schedule_key(Access access) {
  ConfigKey key = choice("pipeline.schedule", engine::schedule_names(),
                         "who does what when, and so the update rule; a .csv: as "
                         "torch.distributed.pipelining writes it",
                         access);
  key.range += " or a .csv file";
  key.set = [named = key.set, access](Config& c, const toml::node& n) {
    const auto value = n.value_exact<std::string>();
    if (!value || !engine::is_schedule_file(*value)) return named(c, n);
    access(c) = *value;
    return true;
  };
  return key;
}

ConfigKey cut_key() {
  return {"pipeline.cut", "a list of module numbers",
          "modules where stages 1.. begin; empty: balanced from measured times",
          [](Config& c, const toml::node& n) {
            return read_list(n, c.pipeline.cut,
                             [](std::int64_t v) { return v >= 0 && v <= 1'000'000; });
          },
          [](const Config& c) {
            return list_text(c.pipeline.cut, [](int v) { return std::to_string(v); });
          }};
}

ConfigKey devices_key() {
  return {"pipeline.devices", "\"auto\", \"cpu\", \"cuda\" or a list as [\"cpu:0\", \"cuda:0\"]",
          "where stages run; a list names one a stage",
          [](Config& c, const toml::node& n) {
            if (const auto one = n.value_exact<std::string>()) {
              c.pipeline.devices = {*one};
              return *one == "auto" || *one == "cpu" || *one == "cuda";
            }
            return read_list(n, c.pipeline.devices,
                             [](const std::string& v) { return v.find(':') != v.npos; }) &&
                   !c.pipeline.devices.empty();
          },
          [](const Config& c) {
            const auto& d = c.pipeline.devices;
            return d.size() == 1 && d[0].find(':') == std::string::npos ? quoted_text(d[0])
                                                                        : list_text(d, quoted_text);
          }};
}

ConfigKey uri_key() {
  ConfigKey key = text(
      "source.uri", "", [](Config & c) -> auto& { return c.source.uri; });
  key.range = "a path or URI";
  for (const io::SourceKind& kind : io::source_kinds())
    key.meaning +=
        (key.meaning.empty() ? "" : "; ") + std::string(kind.example) + ": " + kind.summary;
  return key;
}

ConfigKey roi_key() {
  return {"source.roi", "[x, y, w, h] in pixels, w and h above 0, or []",
          "the part of every picture that is looked at; empty: all of it",
          [](Config& c, const toml::node& n) {
            std::vector<int> roi;
            const bool read =
                read_list(n, roi, [](std::int64_t v) { return v >= 0 && v <= 16384; });
            if (!read || !(roi.empty() || (roi.size() == 4 && roi[2] > 0 && roi[3] > 0)))
              return false;
            c.source.roi = roi;
            return true;
          },
          [](const Config& c) {
            return list_text(c.source.roi, [](int v) { return std::to_string(v); });
          }};
}

ConfigKey replicas_key() {
  return {"pipeline.replicas", "a list of whole numbers from 1 to 1024",
          "pipedream: workers that share each stage and take samples in turn; empty: 1 everywhere",
          [](Config& c, const toml::node& n) {
            return read_list(n, c.pipeline.replicas,
                             [](std::int64_t v) { return v >= 1 && v <= 1024; });
          },
          [](const Config& c) {
            return list_text(c.pipeline.replicas, [](int v) { return std::to_string(v); });
          }};
}

ConfigKey threads_key() {
  constexpr int kMost = 1024;
  return {"pipeline.threads", "a whole number from 1 to 1024, a list of them, or auto",
          "threads that share each operation of a stage's step program, on cores of their own; a "
          "list names them by stage; auto: as many of the machine's as make the slowest stage "
          "fastest, measured at the start. Results do not depend on it",
          [](Config& c, const toml::node& n) {
            if (n.value_exact<std::string>() == "auto") {
              c.pipeline.threads = {0};
              return true;
            }
            const auto in_range = [](std::int64_t v) { return v >= 1 && v <= kMost; };
            const auto one = n.value_exact<std::int64_t>();
            if (!one)
              return read_list(n, c.pipeline.threads, in_range) && !c.pipeline.threads.empty();
            c.pipeline.threads = {int(*one)};
            return in_range(*one);
          },
          [](const Config& c) {
            const auto& threads = c.pipeline.threads;
            if (threads == std::vector<int>{0}) return std::string("\"auto\"");
            return threads.size() == 1
                       ? std::to_string(threads[0])
                       : list_text(threads, [](int v) { return std::to_string(v); });
          }};
}

bool read_number(const toml::node& node, double least, double most, double& number) {
  const auto value = node.is_number() ? node.value<double>() : std::nullopt;
  if (!value || !(*value >= least && *value <= most)) return false;
  number = *value;
  return true;
}

/// A name, or a table of kind, weight, label_smoothing and channels.
bool read_term(const toml::node& node, stages::LossTerm& term) {
  const auto known = [&](const std::string& name) {
    const std::vector<std::string> names = names_of(stages::loss_types());
    term.kind = name;
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (const auto name = node.value_exact<std::string>()) return known(*name);
  const toml::table* const table = node.as_table();
  if (!table || !table->contains("kind")) return false;
  for (const auto& [key, value] : *table) {
    if (key == "kind") {
      const auto name = value.value_exact<std::string>();
      if (!name || !known(*name)) return false;
    } else if (key == "weight") {
      if (!read_number(value, 0, 1e6, term.weight)) return false;
    } else if (key == "label_smoothing") {
      if (!read_number(value, 0, 1, term.label_smoothing)) return false;
    } else if (key == "channels") {
      const auto place = [](std::int64_t v) { return v >= 0 && v <= 65536; };
      if (!read_list(value, term.channels, place) || term.channels.size() != 2 ||
          term.channels[1] == 0)
        return false;
    } else {
      return false;
    }
  }
  return term.label_smoothing == 0 || term.kind == "cross-entropy";
}

std::string term_text(const stages::LossTerm& term) {
  if (stages::LossSpec{term.kind}.terms[0] == term) return quoted_text(term.kind);
  std::string text = "{kind = " + quoted_text(term.kind) + ", weight = " + number_text(term.weight);
  if (term.label_smoothing > 0) text += ", label_smoothing = " + number_text(term.label_smoothing);
  if (!term.channels.empty())
    text += ", channels = " +
            list_text(term.channels, [](int channel) { return std::to_string(channel); });
  return text + "}";
}

ConfigKey loss_key() {
  ConfigKey key = choice(
      "task.loss", names_of(stages::loss_types()),
      described(stages::loss_types(), &stages::LossType::summary) +
          "; a list: their sum, as [{kind = \"mse\"}, {kind = \"ssim\", weight = 0.5}], with "
          "label_smoothing of cross-entropy, and channels = [FIRST, COUNT] that it is of",
      [](Config& c) -> std::string& { return c.task.loss.terms[0].kind; });
  key.range += ", or a list of these or of tables as {kind = \"mse\", weight = 0.5}";
  key.set = [](Config& c, const toml::node& n) {
    stages::LossSpec loss;
    const toml::array* const list = n.as_array();
    if (list) loss.terms.assign(list->size(), {});
    for (std::size_t i = 0; i < loss.terms.size(); ++i) {
      if (!read_term(list ? (*list)[i] : n, loss.terms[i])) return false;
    }
    c.task.loss = loss;
    return !loss.terms.empty();
  };
  key.show = [](const Config& c) {
    const auto& terms = c.task.loss.terms;
    return terms.size() == 1 ? term_text(terms[0]) : list_text(terms, term_text);
  };
  return key;
}

ConfigKey freeze_key() {
  return {
      "model.freeze", "a list of patterns as [\"layer1.*\"]",
      "parameters that stay as they are, by name, * standing for anything: they take no gradient, "
      "no optimizer state and no time",
      [](Config& c, const toml::node& n) {
        return read_list(n, c.model.freeze, [](const std::string& v) { return !v.empty(); });
      },
      [](const Config& c) { return list_text(c.model.freeze, quoted_text); }};
}

ConfigKey ranks_key() {
  return {"pipeline.ranks", "a list of whole numbers from 0 to 4095",
          "under mpirun: the rank of each worker; empty: workers are dealt to ranks in order",
          [](Config& c, const toml::node& n) {
            return read_list(n, c.pipeline.ranks,
                             [](std::int64_t v) { return v >= 0 && v <= 4095; });
          },
          [](const Config& c) {
            return list_text(c.pipeline.ranks, [](int v) { return std::to_string(v); });
          }};
}

#define MILLRACE_AT(member) \
  [](Config & c) -> auto& { \
    return c.member;        \
  }

std::vector<ConfigKey> make_table() {
  constexpr std::int64_t kMany = 1'000'000'000'000;
  return {
      texts("plugins",
            "shared objects that add layers, losses, sources and sinks: code, so trust them",
            MILLRACE_AT(plugins)),
      uri_key(),
      texts(
          "source.uris",
          "under mpirun: a URI for each of several pipelines that learn one network together, each "
          "read where its first rank runs; empty: one pipeline, source.uri",
          MILLRACE_AT(source.uris)),
      choice("source.pace", {"auto", "live", "asap"},
             "live: at the stream's own rate; asap: as fast as the pipeline takes; auto: live for "
             "live sources, asap for files",
             MILLRACE_AT(source.pace)),
      choice("source.drop", {"auto", "newest", "never"},
             "newest: keep the newest frame, count the rest; never: block the source; auto: newest "
             "when paced live, else never",
             MILLRACE_AT(source.drop)),
      whole("source.width", 0, 16384, "pixels; 0: the source's own", MILLRACE_AT(source.width)),
      whole("source.height", 0, 16384, "pixels; 0: the source's own", MILLRACE_AT(source.height)),
      choice(
          "source.fit", io::fit_names(),
          "pictures of another shape than width x height; stretch: squashed into it; crop: their "
          "centre; pad: whole, between black bars",
          MILLRACE_AT(source.fit)),
      roi_key(),
      {"source.channels", "1 or 3", "3: RGB, 1: grey",
       [](Config& c, const toml::node& n) {
         const auto value = n.value_exact<std::int64_t>();
         if (value != 1 && value != 3) return false;
         c.source.channels = int(*value);
         return true;
       },
       [](const Config& c) { return std::to_string(c.source.channels); }},
      real("source.fps", 0, 10000, "rate of sources that have none (images, synth); 0: 25",
           MILLRACE_AT(source.fps)),
      flag("source.loop", "start again at the end", MILLRACE_AT(source.loop)),
      whole("source.seed", 0, kMany, "synth: which scene; images by class: their order",
            MILLRACE_AT(source.seed)),
      flag("source.reconnect",
           "open a live source again by itself when it breaks off or falls silent",
           MILLRACE_AT(source.reconnect)),
      real("source.silence_s", 0.1, 3600, "seconds without a picture that count as broken off",
           MILLRACE_AT(source.silence_s)),
      choice("task.kind", names_of(task_types()), described(task_types(), &TaskType::meaning),
             MILLRACE_AT(task.kind)),
      loss_key(),
      whole("task.horizon", 1, 1000, "next-frame: how many frames later the predicted one comes",
            MILLRACE_AT(task.horizon)),
      text(
          "task.labels",
          "label: a CSV of classes, its first line \"frame,class\" or \"time,class\" (seconds), or "
          "JSON lines as {\"frame\": 17, \"class\": \"day\"}; \"http\": POSTed to the page's "
          "/label; "
          "\"-\": standard input",
          MILLRACE_AT(task.labels)),
      texts("task.classes",
            "names of classes: label's that are told over http or standard input; mask's, from 0",
            MILLRACE_AT(task.classes)),
      text("task.masks",
           "mask: a folder of grey pictures as large as frames; 00017.png is frame 17's, a pixel's "
           "value its class, 255 none",
           MILLRACE_AT(task.masks)),
      text("task.stream", "stream: the URI of the stream to predict, as source.uri",
           MILLRACE_AT(task.stream)),
      text("task.teacher",
           "teacher: the network to learn from: a .pt from millrace.export, or weights of this "
           "config's own network, .safetensors",
           MILLRACE_AT(task.teacher)),
      flag("task.with_input",
           "mask, stream: the input itself is predicted, too, by the network's first channels",
           MILLRACE_AT(task.with_input)),
      choice("model.preset", stages::preset_names(),
             "layers: as written in [[model.layer]]; file: model.file", MILLRACE_AT(model.preset)),
      whole("model.layers", 1, 1000, "partime-cnn: convolutions", MILLRACE_AT(model.layers)),
      whole("model.features", 1, 4096, "partime-cnn: channels between convolutions",
            MILLRACE_AT(model.features)),
      {"model.kernel", "an odd whole number from 1 to 63",
       "partime-cnn: side of a convolution's kernel",
       [](Config& c, const toml::node& n) { return read_odd(n, c.model.kernel); },
       [](const Config& c) { return std::to_string(c.model.kernel); }},
      choice("model.norm", {"none", "instance", "group"},
             "partime-cnn: what stands between a convolution and its activation",
             MILLRACE_AT(model.norm)),
      choice("model.activation", {"relu", "leaky-relu"},
             "partime-cnn: after each convolution but the last", MILLRACE_AT(model.activation)),
      real("model.slope", 0, 1, "leaky-relu: slope below 0", MILLRACE_AT(model.slope)),
      whole("model.out_channels", 1, 4096, "channels of the prediction; unset: as source.channels",
            MILLRACE_AT(model.out_channels)),
      text("model.file",
           "file: a network from PyTorch, as python -m millrace.export writes it; TorchScript, and "
           "so "
           "code: use none that you would not run",
           MILLRACE_AT(model.file)),
      freeze_key(),
      {"model.memory_format", "one of 'contiguous', 'channels_last'",
       "layout of samples and activations; channels_last is faster for kernels up to 5 on CPU "
       "cores and far "
       "slower for large ones; results differ by rounding",
       [](Config& c, const toml::node& n) {
         const auto value = n.value_exact<std::string>();
         if (value != "contiguous" && value != "channels_last") return false;
         c.model.channels_last = value == "channels_last";
         return true;
       },
       [](const Config& c) {
         return quoted_text(c.model.channels_last ? "channels_last" : "contiguous");
       }},
      text("model.weights", "a .safetensors file to start from", MILLRACE_AT(weights.file)),
      whole("model.seed", 0, kMany, "initial weights, as torch.manual_seed",
            MILLRACE_AT(weights.seed)),
      schedule_key(MILLRACE_AT(pipeline.schedule)),
      whole("pipeline.stages", 1, 4096, "stages the network is cut into",
            MILLRACE_AT(pipeline.stages)),
      cut_key(),
      devices_key(),
      threads_key(),
      whole("pipeline.microbatches", 1, 65536,
            "samples a minibatch, in schedules that have minibatches",
            MILLRACE_AT(pipeline.microbatches)),
      whole("pipeline.virtual_stages", 1, 1024, "interleaved: stages a worker",
            MILLRACE_AT(pipeline.virtual_stages)),
      flag("pipeline.vertical_sync", "pipedream: every stage uses the version that stage 0 saw",
           MILLRACE_AT(pipeline.vertical_sync)),
      replicas_key(),
      ranks_key(),
      whole("pipeline.tensor", 1, 64,
            "under mpirun: ranks that share each worker's convolutions and linear layers",
            MILLRACE_AT(pipeline.tensor)),
      flag("pipeline.recompute",
           "keep a sample's input alone and run forward again to go back: less memory, more time",
           MILLRACE_AT(pipeline.recompute)),
      choice("pipeline.capture", {"auto", "graph", "eager"},
             "graph: each step is recorded once and replayed, as a CUDA Graph or, on a core, as a "
             "step "
             "program, equal to eager within rounding; eager: operator by operator, PyTorch's own "
             "bits "
             "on a core; auto: recorded where that can be done and, on a core, it has vectors",
             MILLRACE_AT(pipeline.capture)),
      choice("optimizer.kind", stages::optimizer_names(), "as in torch.optim",
             MILLRACE_AT(optimizer.kind)),
      real("optimizer.lr", 0, 1000, "learning rate", MILLRACE_AT(optimizer.lr)),
      real("optimizer.momentum", 0, 1, "sgd, rmsprop", MILLRACE_AT(optimizer.momentum)),
      real("optimizer.weight_decay", 0, 1, "decoupled in adamw, added to the gradient elsewhere",
           MILLRACE_AT(optimizer.weight_decay)),
      real("optimizer.beta1", 0, 0.9999999, "adam, adamw: decay of the mean",
           MILLRACE_AT(optimizer.beta1)),
      real("optimizer.beta2", 0, 0.9999999, "adam, adamw: decay of the square",
           MILLRACE_AT(optimizer.beta2)),
      real("optimizer.alpha", 0, 0.9999999, "rmsprop: decay of the square",
           MILLRACE_AT(optimizer.alpha)),
      real("optimizer.eps", 0, 1, "rmsprop, adam, adamw", MILLRACE_AT(optimizer.eps)),
      choice("correction.kind", correction_choices(),
             "what is done about old gradients; none: the schedule's bare rule; auto: none where "
             "gradients are fresh, else inverse-age, with a beta1 of 0 unless that is named",
             MILLRACE_AT(correction.kind)),
      whole("correction.anneal", 1, kMany, "pipemare: updates until the full rate is reached",
            MILLRACE_AT(correction.anneal)),
      real("correction.lambda", 0, 1000, "dc-asgd: strength", MILLRACE_AT(correction.lambda)),
      real("correction.decay", 0.000001, 1,
           "discrepancy: what is left of a change of the weights after a delay",
           MILLRACE_AT(correction.decay)),
      {"correction.kernel", "an odd whole number from 1 to 63",
       "local: side of the auxiliary heads' kernel",
       [](Config& c, const toml::node& n) { return read_odd(n, c.correction.kernel); },
       [](const Config& c) { return std::to_string(c.correction.kernel); }},
      real("correction.rate", 0, 1000, "local: the auxiliary heads' rate over the stage's",
           MILLRACE_AT(correction.rate)),
      choice(
          "guard.kind", {"none", "roll-back"},
          "roll-back: when the loss diverges, go back to the last good weights and halve the rate",
          MILLRACE_AT(guard.kind)),
      choice("replay.kind", replay_names(),
             "samples to learn from again while the stream leaves time; recent: the latest; "
             "reservoir: any of all so far; hard: those of a large loss",
             MILLRACE_AT(replay.kind)),
      whole("replay.size", 1, 1 << 24, "samples kept in memory for that", MILLRACE_AT(replay.size)),
      {"replay.share", "\"auto\" or a number from 0 to 0.99",
       "of all samples learned from, those that are replayed; auto: as many as real time leaves "
       "room for; a live stream gets no more than that whatever the number",
       [](Config& c, const toml::node& n) { return read_share(n, c.replay.share); },
       [](const Config& c) {
         return c.replay.share < 0 ? quoted_text("auto") : number_text(c.replay.share);
       }},
      real("monitor.fps", 0, 100000, "F of the rule T/N < 1/F; 0: the source's own",
           MILLRACE_AT(monitor.fps)),
      choice("monitor.policy", engine::policy_names(),
             "when frames come faster than the slowest stage takes them; drop: the queue keeps the "
             "newest; skip: predict all, learn from every k-th; recut: cut the network anew by "
             "fresh measurements",
             MILLRACE_AT(monitor.policy)),
      text("novelty.snapshots",
           "folder for a picture of each event of unexpected frames; empty: none",
           MILLRACE_AT(novelty.snapshots)),
      text("novelty.webhook",
           "http://[USER:PASSWORD@]HOST:PORT/PATH: each event is posted there as JSON; empty: none",
           MILLRACE_AT(novelty.webhook)),
      text("novelty.mqtt",
           "mqtt://[USER:PASSWORD@]HOST[:PORT]: each event is published there; empty: none",
           MILLRACE_AT(novelty.mqtt)),
      text("novelty.topic", "what novelty.mqtt publishes by", MILLRACE_AT(novelty.topic)),
      text("checkpoint.dir", "folder for checkpoints; empty: none", MILLRACE_AT(checkpoint.dir)),
      whole("checkpoint.every", 0, kMany, "frames between checkpoints; 0: only at the end",
            MILLRACE_AT(checkpoint.every)),
      flag("checkpoint.resume", "go on from the checkpoint in checkpoint.dir, if there is one",
           MILLRACE_AT(checkpoint.resume)),
      text("output.report", "the report, .json", MILLRACE_AT(output.report)),
      text("output.weights", "final weights, .safetensors", MILLRACE_AT(output.weights)),
      text("output.loss_plot", "the loss curve, .png", MILLRACE_AT(output.loss_plot)),
      text("output.prediction", "input, target and prediction of the last frame side by side, .png",
           MILLRACE_AT(output.prediction)),
      text("output.video",
           "prediction beside input, .mp4 or .mkv, or served at "
           "rtsp://[USER:PASSWORD@]ADDRESS:PORT/PATH",
           MILLRACE_AT(output.video)),
      text("output.log",
           "one JSON object a line about every output.log_every-th frame, appended while it "
           "learns; \"-\": stdout, and the summary then goes to stderr",
           MILLRACE_AT(output.log)),
      whole("output.log_every", 1, kMany, "frames from one line of output.log to the next",
            MILLRACE_AT(output.log_every)),
      texts("output.sinks",
            std::string("\"NAME:ARGUMENT\" each: sinks of plug-ins") +
                (sink_types().empty() ? "" : "; ") + described(sink_types(), &SinkType::summary),
            MILLRACE_AT(output.sinks)),
  };
}

#undef MILLRACE_AT

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  // Plug-ins add names that a key can take.
  static int made_of = plugins_loaded();
  static std::vector<ConfigKey> table = make_table();
  if (made_of != plugins_loaded()) {
    made_of = plugins_loaded();
    table = make_table();
  }
  return table;
}

}  // namespace millrace::app
