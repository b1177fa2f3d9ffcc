#include "tools/app/outputs/report.h"

#include <vector>

#include "engine/format.h"
#include "io/plot/plot.h"
#include "io/queue/planar.h"
#include "tools/app/outputs/run_log.h"

namespace millrace::app {
namespace {

std::string loss_text(double loss) {
  return engine::format("loss %.4f", loss);
}

}  // namespace

void draw_loss(const RunLog& log, const std::string& path) {
  io::Chart chart{.title = "Loss while learning, frame by frame",
                  .x_label = "frame",
                  .y_label = "mean squared error",
                  .log_y = true};
  const Compared& losses = log.losses();
  auto mean_frame = losses.mean_frame.curve();
  for (auto& [frame, loss] : mean_frame) ++frame;  // there is no mean before the first frame
  chart.series = {{.label = "network", .points = losses.network.curve()},
                  {.label = "mean frame", .points = std::move(mean_frame), .dashed = true}};
  if (losses.last_frame.count() > 0)
    chart.series.push_back(
        {.label = "last frame", .points = losses.last_frame.curve(), .dashed = true});
  io::write_chart(chart, path);
}

void draw_prediction(const RunLog& log, const stages::ImageShape& shape, const std::string& path) {
  const int channels = int(shape.channels), height = int(shape.height), width = int(shape.width);
  const float *target = log.target(), *prediction = log.prediction();
  const std::size_t elements = log.mean_frame().mean().size();
  const auto error = io::shown_error({prediction, elements}, {target, elements});
  const auto picture = [&](const float* data) {
    return io::from_planar(data, channels, height, width);
  };
  const engine::LossHistory& copies = log.losses().last_frame;
  io::write_strip(
      "Input and prediction of the last frame",
      {{"input", copies.count() > 0 ? loss_text(copies.recent()) + " as the prediction" : "",
        picture(log.input())},
       {"target", "", picture(target)},
       {"prediction", loss_text(log.network().recent()) + " (last 100 frames)",
        picture(prediction)},
       {"mean frame", loss_text(log.baseline().recent()) + " (last 100 frames)",
        picture(log.mean_frame().mean().data())},
       {"error x4", "target - prediction", picture(error.data())}},
      path);
}

}  // namespace millrace::app
