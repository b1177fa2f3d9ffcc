#include "tools/run/run.h"

#include <unistd.h>  // gethostname

#include <atomic>
#include <future>
#include <utility>

#include "engine/trainer/checkpointer.h"
#include "io/files/whole_file.h"
#include "io/queue/reader.h"
#include "io/source/stream_health.h"
#include "stages/safetensors.h"
#include "tools/run/alert_watch.h"
#include "tools/run/assembly.h"
#include "tools/run/events.h"
#include "tools/run/frame_feed.h"
#include "tools/run/frame_log.h"
#include "tools/run/live_view.h"
#include "tools/run/observers.h"
#include "tools/run/outputs.h"
#include "tools/run/overload_watch.h"
#include "tools/run/pictures.h"
#include "tools/run/rate_watch.h"
#include "tools/run/reload.h"
#include "tools/run/report.h"
#include "tools/run/run_log.h"
#include "tools/run/run_source.h"
#include "tools/run/status_line.h"
#include "tools/run/video_out.h"

namespace millrace::tools {
namespace {

using namespace std::chrono_literals;

/// A config that is found right before any source is opened, and what it makes of the network.
struct Checked {
  Checked(const Config& given, const RunOptions& options) : config(given) {
    settle(config);
    trainer = assemble(config, configured_shape(config));
    require_writable(config);
    if (!options.trace.empty()) {
      try {
        require_writable(options.trace);
      } catch (const std::invalid_argument& error) {
        throw ConfigError(std::string("--trace: ") + error.what());
      }
    }
    if (!options.serve) return;
    try {
      io::web_options(options.serve_at, options.token);
    } catch (const std::invalid_argument& error) {
      throw ConfigError(std::string("--serve: ") + error.what());
    }
  }

  Config config;
  engine::TrainerOptions trainer;
};

/// Shows predictions to the user's own code.
class Callback final : public engine::Observer {
 public:
  Callback(engine::Trainer& trainer, std::size_t inputs) : trainer_(trainer), inputs_(inputs) {}
  std::function<void(const Prediction&)> see;

  void predicted(const engine::SampleInfo& info, int slot, float loss) override {
    if (!see) return;
    const std::size_t targets = trainer_.target_elements();
    const std::chrono::duration<double, std::milli> latency = engine::Clock::now() - info.captured;
    see({.index = info.sample,
         .frame = info.frame,
         .loss = loss,
         .latency_ms = latency.count(),
         .input = {trainer_.shown_input(slot), inputs_},
         .target = {trainer_.shown_target(slot), targets},
         .prediction = {trainer_.prediction(slot), targets}});
  }

 private:
  engine::Trainer& trainer_;
  const std::size_t inputs_;
};

/// F as the config has it, or else the source.
double rate_of(const Config& config, const io::SourceInfo& info) {
  return config.monitor.fps > 0 ? config.monitor.fps : info.fps;
}

}  // namespace

/// The blocks in the order that a frame meets them, then what watches them.
struct Run::Parts {
  Parts(Checked checked, RunOptions given, std::unique_ptr<io::Source> source)
      : config(std::move(checked.config)),
        options(std::move(given)),
        info(source->info()),
        health(source->health()),
        task(task_of(config.task.kind)),
        live(paced_live(config, info) || info.live),
        drop(drop_policy(config, live)),
        source_ahead(std::move(source)),
        queue(queue_capacity(config, drop), drop),
        resizer(resizer_options(config, info)),
        trainer(trainer_options(std::move(checked.trainer))),
        feed(trainer, queue, resizer, task),
        log(trainer, task == Task::label),
        callback(trainer, std::size_t(shape().channels * shape().height * shape().width)),
        overload(config, trainer, live),
        video(make_video()),
        lines(make_lines()),
        actions(make_actions()),
        checkpointer(make_checkpointer()),
        page(make_page()),
        reload(config, options.read_again,
               {rate, trainer.monitor(), info.fps, checkpointer.get()}) {
    if (video) observers.add(video.get());
    if (page) observers.add(page.get());
    observers.add(&log);  // before those that read its histories
    if (lines) observers.add(lines.get());
    make_alerts();
    observers.add(&callback);
    feed.rest_while([this] { return paused() && !stopping.load(std::memory_order_relaxed); });
  }

  stages::ImageShape shape() const {
    return {config.source.channels, resizer.height(), resizer.width()};
  }
  bool paused() const { return page && page->paused(); }

  engine::TrainerOptions trainer_options(engine::TrainerOptions options) {
    if (options.sample != shape()) options = assemble(config, shape());  // as the source has it
    if (task == Task::label) require_classes(*options.network);
    options.fps = rate_of(config, info);
    return options;
  }

  void require_classes(const stages::Network& network) const {
    const std::int64_t numbers = network.shape(network.size() - 1).channels;
    if (info.classes == 0)
      throw config.error("task.kind",
                         "label needs a source that tells classes, as synth:shapes?scenes=4");
    if (numbers != info.classes) {
      throw config.error("model.layer", "the network gives " + std::to_string(numbers) +
                                            " numbers, the source tells " +
                                            std::to_string(info.classes) + " classes");
    }
  }

  std::unique_ptr<VideoOut> make_video() {
    if (config.output.video.empty()) return nullptr;
    if (task == Task::label) throw config.error("output.video", "labels are no pictures to show");
    return std::make_unique<VideoOut>(trainer, shape(), info.fps, config.output.video);
  }

  void make_alerts() {
    const auto& to = config.novelty;
    if (to.snapshots.empty() && to.webhook.empty() && to.mqtt.empty()) return;
    const stages::ImageShape picture = shape();
    const bool pictures =
        task != Task::label &&
        trainer.target_elements() == std::size_t(picture.channels * picture.height * picture.width);
    alerts = std::make_unique<Alerts>(AlertOptions{.snapshots = pictures ? to.snapshots : "",
                                                   .webhook = to.webhook,
                                                   .mqtt = to.mqtt,
                                                   .topic = to.topic,
                                                   .source = config.source.uri,
                                                   .channels = int(picture.channels),
                                                   .height = int(picture.height),
                                                   .width = int(picture.width)});
    alert_watch = std::make_unique<AlertWatch>(trainer, log.novelty(), *alerts, pictures);
    observers.add(alert_watch.get());
  }

  std::unique_ptr<FrameLog> make_lines() {
    const auto& output = config.output;
    if (output.log.empty()) return nullptr;
    return std::make_unique<FrameLog>(
        output.log, output.log_every,
        LogSubject{trainer.monitor(), queue, log.network(), log.baseline(), log.novelty()});
  }

  std::unique_ptr<engine::ActionLog> make_actions() {
    if (options.trace.empty()) return nullptr;
    return std::make_unique<engine::ActionLog>(int(trainer.schedule().workers.size()));
  }

  std::unique_ptr<engine::Checkpointer> make_checkpointer() {
    // A page, or the config read anew, may ask for some at any time.
    if (config.checkpoint.dir.empty()) return nullptr;
    return std::make_unique<engine::Checkpointer>(
        config.pipeline.stages, config.checkpoint.every,
        [this](int stage) { return trainer.checkpoint(stage); },
        [this](const stages::StateDict& state) { write_checkpoint(state); });
  }

  void write_checkpoint(const stages::StateDict& state) const {
    io::write_whole(checkpoint_file(config), stages::to_safetensors(state));
  }

  std::unique_ptr<LiveView> make_page() {
    if (!options.serve) return nullptr;
    return std::make_unique<LiveView>(
        config, shape(), options.serve_at, options.token,
        LiveSubject{trainer, queue, log, real_time, health, checkpointer.get(), rate});
  }

  io::ReaderOptions reader_options(std::int64_t limit) const {
    // Where nothing is dropped, no frame is read that the limit would leave over.
    const bool exact = drop == io::Drop::never && limit > 0 &&
                       config.monitor.policy != "skip";  // of which some are only predicted
    return {.paced = paced_live(config, info) && !info.live,
            .loop = config.source.loop,
            .limit = exact ? limit : 0,
            .pairs = task == Task::next_frame,
            .fps = info.fps};
  }

  engine::PipelineOptions pipeline_options(std::int64_t limit) {
    engine::PipelineOptions pipeline{.limit = limit, .rate = &rate, .actions = actions.get()};
    if (checkpointer) {
      pipeline.after_sample = [this](int stage, std::int64_t sample) {
        checkpointer->after_sample(stage, sample);
      };
    }
    return pipeline;
  }

  FrameTotals totals() {
    const std::int64_t predicted_only = trainer.monitor().tally().predicted_only;
    return {.received = queue.received(),
            .trained = trainer.trained(),
            .dropped = queue.dropped() + predicted_only,
            .predicted_only = predicted_only};
  }

  /// What the main thread does beside the pipeline, again and again.
  void look(std::int64_t limit) {
    events.tell([this](const std::string& line) { tell(line); });
    const std::string rate_change = rate_watch->look();
    if (!rate_change.empty()) tell("source: " + rate_change);
    const std::string change = overload.look();
    if (!change.empty()) tell("overload: " + change);
    // What is lost at the end, when no more frames are wanted, is no word on the rate.
    const bool ending =
        stopping.load(std::memory_order_relaxed) || (limit > 0 && feed.taken() >= limit);
    if (!ending) real_time.note(totals(), overload.late());
    if (lines) lines->write();
    if (page) page->obey();
    const std::string failed = alerts ? alerts->last_error() : "";
    if (failed != alert_error) tell("alert: " + (alert_error = failed));
  }

  /// What makes this run comparable with another: what it was asked, of what, where, how long.
  nlohmann::ordered_json about_run() {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    const std::chrono::duration<double> seconds = ended - began;
    const double trained = double(frames.trained);
    return {{"uri", io::redacted(config.source.uri)},
            {"seed", config.weights.seed},
            {"host", host},
            {"duration_s", seconds.count()},
            {"fps", seconds.count() > 0 ? trained / seconds.count() : 0.0},
            {"config", to_toml(config)}};
  }

  nlohmann::ordered_json full_report() {
    nlohmann::ordered_json report = make_report(trainer, frames, log, real_time);
    report["realtime"]["F_estimated"] = rate_watch && rate_watch->estimated();
    report["source"] = source_json(*health);
    report["overload"] = overload.report();
    report["overload"]["predicted_only"] = frames.predicted_only;
    report["run"] = about_run();
    report["novelty"] = {{"marked", log.novelty().marked()}, {"events", log.novelty().events()}};
    if (alerts) {
      report["novelty"]["alerts"] = {{"told", alerts->told()},
                                     {"dropped", alerts->dropped()},
                                     {"failed", alerts->failed()},
                                     {"last_error", alerts->last_error()}};
    }
    if (task == Task::label) report["accuracy"] = accuracy_json(log);
    if (video) {
      report["video"] = {{"where", video->writer().where()},
                         {"written", video->writer().written()},
                         {"dropped", video->writer().dropped()}};
    }
    return report;
  }

  void tell(const std::string& line) {
    if (on_event) on_event(line);
  }

  const Config config;
  const RunOptions options;
  const io::SourceInfo info;
  const std::shared_ptr<const io::StreamHealth> health;
  const Task task;
  const bool live;
  const io::Drop drop;
  // A frame's way.
  std::unique_ptr<io::Source> source_ahead;  ///< until the reader takes it
  io::FrameQueue queue;
  io::Resizer resizer;
  engine::Trainer trainer;
  FrameFeed feed;
  Observers observers;
  // What watches.
  RunLog log;
  Callback callback;
  OverloadWatch overload;
  RealTime real_time;
  Events events{trainer.guard(), *health, log.novelty()};
  StatusLine status{trainer, queue, log, overload, real_time};
  std::atomic<double> rate{1.0};   ///< times optimizer.lr
  std::unique_ptr<Alerts> alerts;  ///< null: nobody is told
  std::unique_ptr<AlertWatch> alert_watch;
  std::string alert_error;                             ///< told of
  std::unique_ptr<VideoOut> video;                     ///< null: none asked for
  std::unique_ptr<FrameLog> lines;                     ///< null: none asked for
  std::unique_ptr<engine::ActionLog> actions;          ///< null: nobody asks for a trace
  std::unique_ptr<engine::Checkpointer> checkpointer;  ///< null: none while running
  std::unique_ptr<LiveView> page;                      ///< null: nobody watches
  Reload reload;
  std::function<void(const std::string&)> on_event;
  std::function<void()> on_tick;
  std::atomic<bool> stopping{false};
  std::unique_ptr<io::Reader> reader;     ///< null: not yet learning
  std::unique_ptr<RateWatch> rate_watch;  ///< null: not yet learning
  RunFrames frames;
  engine::Clock::time_point began, ended;  ///< of learning
  std::string source_error;
};

Run::Run(const Config& config, RunOptions options) {
  Checked checked(config, options);
  std::unique_ptr<io::Source> source = io::open_source(source_options(checked.config));
  parts_ = std::make_unique<Parts>(std::move(checked), std::move(options), std::move(source));
}

Run::~Run() = default;

void Run::on_prediction(std::function<void(const Prediction&)> see) {
  parts_->callback.see = std::move(see);
}

void Run::on_event(std::function<void(const std::string& line)> tell) {
  parts_->on_event = std::move(tell);
}

void Run::on_tick(std::function<void()> look) {
  parts_->on_tick = std::move(look);
}

void Run::learn(std::int64_t limit) {
  Parts& p = *parts_;
  if (p.reader) throw std::logic_error("a run learns once");
  p.reader =
      std::make_unique<io::Reader>(std::move(p.source_ahead), p.queue, p.reader_options(limit));
  p.rate_watch = std::make_unique<RateWatch>(*p.reader, p.trainer.monitor());
  auto pipeline = std::async(std::launch::async, [&] {
    return p.overload.run(p.feed, &p.observers, p.pipeline_options(limit));
  });
  p.began = engine::Clock::now();
  p.look(limit);
  while (pipeline.wait_for(50ms) != std::future_status::ready) {
    if (p.stopping.load()) p.reader->stop();
    p.look(limit);
    if (p.on_tick) p.on_tick();
  }
  p.ended = engine::Clock::now();
  p.look(limit);
  if (!p.trainer.recording_error().empty())
    p.tell("steps ran eagerly, since recording failed: " + p.trainer.recording_error());
  p.queue.stop();
  p.reader->stop();
  p.reader->join();
  p.source_error = p.reader->error();
  if (p.reader->hung()) p.tell("source: hangs while it is closed; it is left to itself");
  engine::Outcome outcome{.trained = p.trainer.trained()};
  std::exception_ptr failure;
  try {
    outcome = pipeline.get();
  } catch (...) {
    failure = std::current_exception();
  }
  if (p.alerts) p.alerts->finish();
  p.frames = {.received = p.queue.received(),
              .trained = outcome.trained,
              .dropped = p.queue.dropped() + outcome.predicted_only,
              .predicted_only = outcome.predicted_only,
              .rejected = p.queue.rejected() + outcome.rejected + p.feed.pending()};
  if (failure) std::rethrow_exception(failure);
}

void Run::stop() {
  parts_->stopping = true;
}

std::string Run::reload() {
  return parts_->options.read_again ? parts_->reload.read_again() : "there is no file to read";
}

std::vector<std::string> Run::save() {
  Parts& p = *parts_;
  const auto& output = p.reload.config().output;
  const bool predicted = p.log.network().count() > 0;
  Outputs outputs;
  // First what was learned; a failure of the past costs no state of now.
  outputs.write(p.config.checkpoint.dir, [&](const std::string&) {
    const std::string earlier = p.checkpointer ? p.checkpointer->finish() : "";
    p.write_checkpoint(p.trainer.checkpoint());
    if (!earlier.empty()) throw std::runtime_error("a checkpoint while running: " + earlier);
  });
  outputs.write(output.weights, [&](const std::string& file) { save_weights(file); });
  outputs.write(video(), [&](const std::string&) { p.video->finish(); });  // its counts are told
  outputs.write(output.report,
                [&](const std::string& file) { io::write_whole(file, report() + "\n"); });
  outputs.write(p.options.trace, [&](const std::string& file) {
    io::write_whole(file, engine::trace_json(*p.actions, p.trainer.schedule()));
  });
  outputs.write(p.lines ? p.config.output.log : "", [&](const std::string&) {
    if (!p.lines->error().empty()) throw std::runtime_error(p.lines->error());
  });
  outputs.write(predicted ? output.loss_plot : "",
                [&](const std::string& file) { draw_loss(p.log, file); });
  outputs.write(
      predicted && p.task != Task::label ? output.prediction : "",
      [&](const std::string& file) { draw_prediction(p.trainer, p.log, p.shape(), file); });
  return outputs.failures();
}

void Run::save_weights(const std::string& path) const {
  io::write_whole(path, stages::to_safetensors(parts_->trainer.state()));
}

std::int64_t Run::trained() const {
  return parts_->trainer.trained();
}

bool Run::paused() const {
  return parts_->paused();
}

std::string Run::status() const {
  return parts_->status.text();
}

std::string Run::report() const {
  return parts_->full_report().dump(2, ' ', false,
                                    nlohmann::ordered_json::error_handler_t::replace);
}

std::string Run::summary() const {
  return summarize(parts_->full_report());
}

std::string Run::page() const {
  return parts_->page ? parts_->page->url() : "";
}

std::string Run::video() const {
  return parts_->video ? parts_->video->writer().where() : "";
}

std::string Run::remark() const {
  return squash_note(parts_->config, parts_->info);
}

const std::string& Run::source_error() const {
  return parts_->source_error;
}

}  // namespace millrace::tools
