#include "tools/app/outputs/video_out.h"

#include "io/queue/planar.h"

namespace millrace::app {

VideoOut::VideoOut(const stages::ImageShape& shape, double fps, const std::string& to)
    : shape_(shape),
      writer_(io::open_video_writer({.to = to,
                                     .width = int(2 * shape.width),
                                     .height = int(shape.height),
                                     .channels = int(shape.channels),
                                     .fps = fps})) {}

void VideoOut::shown(engine::Sample& sample) {
  const engine::SampleInfo& info = sample.info;
  const auto [channels, height, width] = shape_;
  io::from_planar(sample.shown_input().data(), int(channels), int(height), int(width), input_);
  io::from_planar(sample.prediction().data(), int(channels), int(height), int(width), prediction_);
  input_.id = info.frame;
  input_.captured = info.captured;
  input_.pts = info.captured.time_since_epoch();
  io::side_by_side(input_, prediction_, both_);
  writer_->write(both_);
}

}  // namespace millrace::app
