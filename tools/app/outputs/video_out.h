// The prediction beside the input, as video.
#pragma once

#include <memory>  // the writer

#include "engine/pipeline/feed.h"
#include "stages/model_spec.h"
#include "io/video/video_writer.h"

namespace millrace::app {

/// Writes each prediction beside its input to `to` (see io::VideoWriterOptions). Used by the last
/// stage's worker; counts from any thread, finish() when that has stopped.
class VideoOut final : public engine::Observer {
 public:
  /// Throws std::runtime_error if the video can't be opened.
  VideoOut(const stages::ImageShape& shape, double fps, const std::string& to);
  void shown(engine::Sample& sample) override;
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
