#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/format.h"
#include "engine/trace/action_log.h"
#include "io/plot/plot.h"
#include "io/queue/planar.h"
#include "io/video/video_writer.h"
#include "tools/app/alerts/alerts.h"
#include "tools/app/classes/answers.h"
#include "tools/app/events/novelty.h"
#include "tools/app/learner.h"
#include "tools/app/outputs/frame_log.h"
#include "tools/app/outputs/run_log.h"
#include "tools/app/request.h"

namespace millrace::app {

/// Shows each prediction of a fresh sample to every observer, in order. Observers are added before
/// the run and outlive it.
class Observers final : public engine::Observer {
 public:
  using See = std::function<void(engine::Sample& sample, float loss)>;

  void add(engine::Observer* observer) { fresh_.push_back(observer); }
  /// `see` is called as Observer::predicted() is.
  void add(See see) {
    made_.push_back(std::make_unique<Function>(std::move(see)));
    add(made_.back().get());
  }
  /// Adds an observer that also sees replayed samples, and sees each sample before the others.
  void add_for_all(engine::Observer* observer) { all_.push_back(observer); }

  void shown(engine::Sample& sample) override {
    each(sample, [&](engine::Observer& observer) { observer.shown(sample); });
  }
  void predicted(engine::Sample& sample, float loss) override {
    each(sample, [&](engine::Observer& observer) { observer.predicted(sample, loss); });
  }

 private:
  struct Function final : engine::Observer {
    explicit Function(See see) : see_(std::move(see)) {}
    void predicted(engine::Sample& sample, float loss) override { see_(sample, loss); }
    See see_;
  };
  template <class Show>
  void each(const engine::Sample& sample, const Show& show) {
    for (engine::Observer* const observer : all_) show(*observer);
    if (sample.info.replayed) return;
    for (engine::Observer* const observer : fresh_) show(*observer);
  }

  std::vector<engine::Observer*> fresh_, all_;
  std::vector<std::unique_ptr<Function>> made_;
};

/// Writes each prediction beside its input; for classes, the answer below it. Last stage's worker;
/// finish() after the run.
class VideoOut final : public engine::Observer {
 public:
  /// `to`, `every_frame`: see io::VideoWriterOptions. `answers`: null for predictions that are
  /// pictures. Throws std::runtime_error if the video can't be opened.
  VideoOut(const stages::ImageShape& shape, double fps, const std::string& to, bool every_frame,
           const Answers* answers)
      : shape_(shape),
        answers_(answers),
        factor_(answers ? int((kLegible + shape.width - 1) / shape.width) : 1),
        writer_(io::open_video_writer(
            {.to = to,
             .width = int((answers ? factor_ : 2) * shape.width),
             .height = int(factor_ * shape.height) + (answers ? io::kLine : 0),
             .channels = int(shape.channels),
             .fps = fps,
             .every_frame = every_frame})) {}
  void shown(engine::Sample& sample) override {
    const engine::SampleInfo& info = sample.info;
    const int channels = int(shape_.channels), height = int(shape_.height),
              width = int(shape_.width);
    io::from_planar(sample.shown_input().data(), channels, height, width, input_);
    input_.id = info.frame;
    input_.captured = info.captured;
    input_.pts = info.pts;
    if (answers_) {
      const Answer answer = answers_->now();
      io::write_below(input_, factor_,
                      answers_->name(answer) +
                          (answer.label < 0 ? "" : engine::format(" %.2f", answer.probability)),
                      both_);
    } else {
      io::from_planar(sample.prediction().data(), channels, height, width, prediction_);
      io::side_by_side(input_, prediction_, both_);
    }
    writer_->write(both_);
  }
  void predicted(engine::Sample&, float) override {}
  void finish() { writer_->finish(); }
  const io::VideoWriter& writer() const { return *writer_; }

 private:
  static constexpr std::int64_t kLegible = 320;  ///< pixels a line of text needs

  stages::ImageShape shape_;
  const Answers* answers_;
  int factor_;  ///< enlargement of the input
  std::unique_ptr<io::VideoWriter> writer_;
  io::Frame input_, prediction_, both_;
};

/// Parts that the config does not ask for are null.
struct Records {
  /// All arguments outlive this. Takes the request's sinks.
  Records(Request& request, const Intake& intake, Learner& learner);

  /// Why the log can't be written now; "": it can, or there is none. Any thread.
  std::string log_error() const { return lines ? lines->error() : ""; }
  /// `see` is called for each prediction. Call it before the run.
  void add(std::function<void(const Prediction&)> see);
  /// The newest picture of a sample: the frame to predict, or the input. Null: it has not arrived.
  const float* newest(engine::Sample& sample) const;

  Observers observers;
  std::unique_ptr<Answers> answers;  ///< null: the task has no classes of frames
  RunLog log;
  Novelty novelty;
  std::vector<std::unique_ptr<Sink>> sinks;
  std::unique_ptr<VideoOut> video;
  std::unique_ptr<FrameLog> lines;
  std::unique_ptr<engine::ActionLog> actions;
  std::unique_ptr<Alerts> alerts;

 private:
  void raise_alerts(const Config& config, const Intake& intake, const engine::Trainer& trainer);
};

}  // namespace millrace::app
