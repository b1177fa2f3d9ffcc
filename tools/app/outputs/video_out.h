// The prediction beside the input, as video.
#pragma once

#include <memory>

#include "engine/pipeline/feed.h"
#include "io/queue/planar.h"
#include "io/video/video_writer.h"
#include "stages/model_spec.h"

namespace millrace::app {

/// Writes each prediction beside its input. Used by the last stage's worker; finish() after the
/// run.
class VideoOut final : public engine::Observer {
 public:
  /// `to`: as in io::VideoWriterOptions. Throws std::runtime_error if the video can't be opened.
  VideoOut(const stages::ImageShape& shape, double fps, const std::string& to)
      : shape_(shape),
        writer_(io::open_video_writer({.to = to,
                                       .width = int(2 * shape.width),
                                       .height = int(shape.height),
                                       .channels = int(shape.channels),
                                       .fps = fps})) {}
  void shown(engine::Sample& sample) override {
    const engine::SampleInfo& info = sample.info;
    const int channels = int(shape_.channels), height = int(shape_.height),
              width = int(shape_.width);
    io::from_planar(sample.shown_input().data(), channels, height, width, input_);
    io::from_planar(sample.prediction().data(), channels, height, width, prediction_);
    input_.id = info.frame;
    input_.captured = info.captured;
    input_.pts = info.captured.time_since_epoch();
    io::side_by_side(input_, prediction_, both_);
    writer_->write(both_);
  }
  void predicted(engine::Sample&, float) override {}
  /// Throws std::runtime_error if writing failed.
  void finish() { writer_->finish(); }
  const io::VideoWriter& writer() const { return *writer_; }

 private:
  stages::ImageShape shape_;
  std::unique_ptr<io::VideoWriter> writer_;
  io::Frame input_, prediction_, both_;  ///< storage is reused
};

}  // namespace millrace::app
