// `millrace run`: learn from a source until it ends.
#include <atomic>    // rate
#include <chrono>    // waits
#include <cstdio>    // results
#include <future>    // the pipeline beside the progress line
#include <iostream>  // results

#include "engine/trainer/checkpointer.h"
#include "engine/trainer/trainer.h"
#include "io/files/whole_file.h"
#include "io/queue/reader.h"
#include "io/source/source.h"
#include "io/source/stream_health.h"
#include "stages/safetensors.h"
#include "tools/config/commands.h"
#include "tools/run/assembly.h"
#include "tools/run/frame_feed.h"
#include "tools/run/frame_log.h"
#include "tools/run/live_view.h"
#include "tools/run/news.h"
#include "tools/run/overload_watch.h"
#include "tools/run/pictures.h"
#include "tools/run/progress.h"
#include "tools/run/rate_watch.h"
#include "tools/run/reload.h"
#include "tools/run/report.h"
#include "tools/run/run_log.h"
#include "tools/run/run_source.h"
#include "tools/run/signals.h"
#include "tools/run/status_line.h"
#include "tools/run/video_out.h"
#include "tools/run/watchdog.h"

namespace millrace::tools {
namespace {

using namespace std::chrono_literals;

/// The parts of one run, in the order a frame meets them.
class Run {
 public:
  Run(const Config& config, const RunArguments& arguments, std::unique_ptr<io::Source> source)
      : config_(config),
        arguments_(arguments),
        info_(source->info()),
        health_(source->health()),
        task_(task_of(config.task.kind)),
        live_(paced_live(config, info_) || info_.live),
        drop_(drop_policy(config, live_)),
        resizer_(resizer_options(config, info_)),
        queue_(queue_capacity(config, drop_), drop_),
        trainer_(trainer_options()),
        overload_(config, trainer_, live_),
        log_(trainer_, task_ == Task::label),
        feed_(trainer_, queue_, resizer_, task_),
        video_(make_video()),
        lines_(make_lines()),
        actions_(make_actions()),
        checkpointer_(make_checkpointer()),
        page_(make_page()),
        reload_(config, arguments, {rate_, trainer_.monitor(), info_.fps, checkpointer_.get()}),
        reader_(std::move(source), queue_, reader_options()) {}

  void learn() {
    Progress progress(arguments_.quiet);
    log_.show_on(video_.get(), page_.get(), lines_.get());
    if (page_) feed_.rest_while([this] { return page_->paused(); });
    const std::string squashed = squash_note(config_, info_);
    if (!squashed.empty() && !arguments_.quiet)
      std::fprintf(stderr, "source: %s\n", squashed.c_str());
    if (page_ && !arguments_.quiet) std::fprintf(stderr, "page: %s\n", page_->url().c_str());
    if (video_ && !arguments_.quiet)
      std::fprintf(stderr, "video: %s\n", video_->writer().where().c_str());
    auto pipeline = std::async(std::launch::async, [this] {
      engine::PipelineOptions options{
          .limit = arguments_.frames, .rate = &rate_, .actions = actions_.get()};
      if (checkpointer_) {
        options.after_sample = [this](int stage, std::int64_t sample) {
          checkpointer_->after_sample(stage, sample);
        };
      }
      return overload_.run(feed_, &log_, std::move(options));
    });
    Watchdog watchdog;
    watchdog.ready();
    bool stopping = false;
    while (pipeline.wait_for(50ms) != std::future_status::ready) {
      if (asked_to_stop() && !stopping) {
        stopping = true;
        watchdog.stopping();
        reader_.stop();
        progress.finish();
        if (!arguments_.quiet) std::fprintf(stderr, "stopping: draining the pipeline\n");
      }
      news_.tell(progress);
      tell(progress, "source", rate_watch_.look());
      tell(progress, "overload", overload_.look());
      if (asked_to_reload()) {
        progress.finish();
        std::fprintf(stderr, "config: %s\n", reload_.read_again().c_str());
      }
      if (lines_) lines_->write();
      if (page_) page_->obey();
      if (watchdog.due(trainer_.trained())) watchdog.trained(trainer_.trained(), status_.text());
      if (progress.due()) progress.show(status_.text());
    }
    if (!stopping) watchdog.stopping();
    progress.finish();
    news_.tell(progress);
    if (lines_) lines_->write();
    if (!trainer_.recording_error().empty()) {
      std::fprintf(stderr, "steps ran eagerly, since recording failed: %s\n",
                   trainer_.recording_error().c_str());
    }
    queue_.stop();
    reader_.stop();
    reader_.join();
    if (reader_.hung())
      std::fprintf(stderr, "source: hangs while it is closed; it is left to itself\n");
    const engine::Outcome outcome = pipeline.get();
    frames_ = {.received = queue_.received(),
               .trained = outcome.trained,
               .dropped = queue_.dropped() + outcome.predicted_only,
               .predicted_only = outcome.predicted_only,
               .rejected = queue_.rejected() + outcome.rejected + feed_.pending()};
  }

  /// Writes every output that was asked for. One that can't be written costs no other; the first
  /// failure is thrown when all were tried.
  void save() {
    nlohmann::ordered_json report = make_report(trainer_, frames_, log_);
    report["realtime"]["F_estimated"] = rate_watch_.estimated();
    report["source"] = source_json(*health_);
    report["overload"] = overload_.report();
    report["overload"]["predicted_only"] = frames_.predicted_only;
    report["novelty"] = {{"marked", log_.novelty().marked()}, {"events", log_.novelty().events()}};
    if (task_ == Task::label) report["accuracy"] = accuracy_json(log_);
    if (video_) {
      write_output(video_->writer().where(), [&](const std::string&) { video_->finish(); });
      report["video"] = {{"where", video_->writer().where()},
                         {"written", video_->writer().written()},
                         {"dropped", video_->writer().dropped()}};
    }
    const auto& output = reload_.config().output;
    const bool predicted = log_.network().count() > 0;
    write_output(arguments_.report.empty() ? output.report : arguments_.report,
                 [&](const std::string& file) { io::write_whole(file, report.dump(2) + "\n"); });
    write_output(output.weights, [&](const std::string& file) {
      io::write_whole(file, stages::to_safetensors(trainer_.state()));
    });
    write_output(config_.checkpoint.dir, [&](const std::string&) {
      const std::string error = checkpointer_ ? checkpointer_->finish() : "";
      if (!error.empty()) throw std::runtime_error(error);
      write_checkpoint(trainer_.checkpoint());
    });
    write_output(arguments_.trace, [&](const std::string& file) {
      io::write_whole(file, engine::trace_json(*actions_, trainer_.schedule()));
    });
    write_output(lines_ ? output.log : "", [&](const std::string&) {
      if (!lines_->error().empty()) throw std::runtime_error(lines_->error());
    });
    write_output(predicted ? output.loss_plot : "",
                 [&](const std::string& file) { draw_loss(log_, file); });
    write_output(predicted && task_ != Task::label ? output.prediction : "",
                 [&](const std::string& file) { draw_prediction(trainer_, log_, shape(), file); });
    if (!arguments_.quiet)
      (output.log == "-" ? std::cerr : std::cout) << summarize(report) << std::flush;
    if (!failure_.empty()) throw std::runtime_error(failure_);
  }

  const std::string& source_error() const { return reader_.error(); }

 private:
  stages::ImageShape shape() const {
    return {config_.source.channels, resizer_.height(), resizer_.width()};
  }

  engine::TrainerOptions trainer_options() {
    engine::TrainerOptions options = assemble(config_, shape());
    if (task_ == Task::label) require_classes(*options.network);
    options.fps = config_.monitor.fps > 0 ? config_.monitor.fps : info_.fps;
    return options;
  }

  template <class Write>
  void write_output(const std::string& file, const Write& write) {
    if (file.empty()) return;
    try {
      write(file);
    } catch (const std::runtime_error& error) {
      if (failure_.empty()) failure_ = error.what();
    }
  }

  std::unique_ptr<FrameLog> make_lines() {
    const auto& output = config_.output;
    if (output.log.empty()) return nullptr;
    return std::make_unique<FrameLog>(output.log, output.log_every, trainer_.monitor(), queue_);
  }

  std::unique_ptr<engine::ActionLog> make_actions() {
    if (arguments_.trace.empty()) return nullptr;
    return std::make_unique<engine::ActionLog>(int(trainer_.schedule().workers.size()));
  }

  std::unique_ptr<engine::Checkpointer> make_checkpointer() {
    // A page, or the config read anew, may ask for some at any time.
    if (config_.checkpoint.dir.empty()) return nullptr;
    return std::make_unique<engine::Checkpointer>(
        config_.pipeline.stages, config_.checkpoint.every,
        [this](int stage) { return trainer_.checkpoint(stage); },
        [this](const stages::StateDict& state) { write_checkpoint(state); });
  }

  void write_checkpoint(const stages::StateDict& state) const {
    io::write_whole(checkpoint_file(config_), stages::to_safetensors(state));
  }

  io::ReaderOptions reader_options() const {
    // Where nothing is dropped, no frame is read that --frames would leave over.
    const bool exact = drop_ == io::Drop::never && arguments_.frames > 0 &&
                       config_.monitor.policy != "skip";  // of which some are only predicted
    return {.paced = paced_live(config_, info_) && !info_.live,
            .loop = config_.source.loop,
            .limit = exact ? arguments_.frames + (task_ == Task::next_frame ? 1 : 0) : 0,
            .fps = info_.fps};
  }

  std::unique_ptr<LiveView> make_page() {
    if (!arguments_.serve) return nullptr;
    return std::make_unique<LiveView>(
        config_, shape(), arguments_.serve_at, arguments_.token,
        LiveSubject{trainer_, queue_, log_, health_, checkpointer_.get(), rate_});
  }

  static void tell(Progress& progress, const char* who, const std::string& line) {
    if (line.empty()) return;
    progress.finish();
    std::fprintf(stderr, "%s: %s\n", who, line.c_str());
  }

  void require_classes(const stages::Network& network) const {
    const std::int64_t numbers = network.shape(network.size() - 1).channels;
    if (info_.classes == 0)
      throw config_.error("task.kind",
                          "label needs a source that tells classes, as synth:shapes?scenes=4");
    if (numbers != info_.classes) {
      throw config_.error("model.layer", "the network gives " + std::to_string(numbers) +
                                             " numbers, the source tells " +
                                             std::to_string(info_.classes) + " classes");
    }
  }

  std::unique_ptr<VideoOut> make_video() {
    if (config_.output.video.empty()) return nullptr;
    if (task_ == Task::label) throw config_.error("output.video", "labels are no pictures to show");
    return std::make_unique<VideoOut>(trainer_, shape(), info_.fps, config_.output.video);
  }

  const Config& config_;
  const RunArguments& arguments_;
  io::SourceInfo info_;
  std::shared_ptr<const io::StreamHealth> health_;
  Task task_;
  bool live_;
  io::Drop drop_;
  io::Resizer resizer_;
  io::FrameQueue queue_;
  engine::Trainer trainer_;
  OverloadWatch overload_;
  std::atomic<double> rate_{1.0};  ///< times optimizer.lr
  RunLog log_;
  News news_{trainer_.guard(), *health_, log_.novelty()};
  FrameFeed feed_;
  std::unique_ptr<VideoOut> video_;                     ///< null: none asked for
  std::unique_ptr<FrameLog> lines_;                     ///< null: none asked for
  std::unique_ptr<engine::ActionLog> actions_;          ///< null: nobody asks for a trace
  std::unique_ptr<engine::Checkpointer> checkpointer_;  ///< null: none while running
  std::unique_ptr<LiveView> page_;                      ///< null: nobody watches
  Reload reload_;
  io::Reader reader_;  ///< last: it starts to read as soon as it stands
  RateWatch rate_watch_{reader_, trainer_.monitor()};
  RunFrames frames_;
  std::string failure_;  ///< the first output that could not be written
  StatusLine status_{trainer_, queue_, log_, overload_};
};

}  // namespace

int run_command(const RunArguments& arguments) {
  const Config config = load_config(arguments.config, arguments.settings);
  assemble(config,
           configured_shape(config));  // whatever is wrong is said before a source is opened
  try {
    if (arguments.serve) io::web_options(arguments.serve_at, arguments.token);
  } catch (const std::invalid_argument& error) {
    throw ConfigError(std::string("--serve: ") + error.what());
  }
  std::unique_ptr<io::Source> source = io::open_source(source_options(config));
  catch_signals();  // from here on there is something to save
  Run run(config, arguments, std::move(source));
  run.learn();
  run.save();
  if (run.source_error().empty()) return kDone;
  throw std::runtime_error(run.source_error());
}

}  // namespace millrace::tools
