#include "tools/page/metrics.h"

#include <cmath>

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

namespace millrace::page {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

/// Families in the order they are added.
class Sheet {
 public:
  void family(const std::string& name, const std::string& help, MetricType type) {
    families_.push_back({.name = name, .help = help, .type = type, .metric = {}});
  }
  void value(double value, Labels labels = {}) {
    ClientMetric& metric = add(std::move(labels));
    if (families_.back().type == MetricType::Counter) metric.counter.value = value;
    if (families_.back().type == MetricType::Gauge) metric.gauge.value = value;
  }
  void histogram(const engine::Histogram& durations, Labels labels = {}) {
    ClientMetric::Histogram& histogram = add(std::move(labels)).histogram;
    for (double bound = 16e-6; bound < 17; bound *= 2) {  // seconds
      histogram.bucket.push_back({.cumulative_count = std::uint64_t(durations.at_most(bound * 1e9)),
                                  .upper_bound = bound});
    }
    histogram.sample_count = std::uint64_t(durations.count());
    histogram.sample_sum = durations.sum() * 1e-9;
  }
  void counter(const std::string& name, const std::string& help, std::int64_t count) {
    family(name, help, MetricType::Counter);
    value(double(count));
  }
  void gauge(const std::string& name, const std::string& help, double now) {
    family(name, help, MetricType::Gauge);
    value(now);
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  ClientMetric& add(Labels labels) {
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }
  std::vector<MetricFamily> families_;
};

void add_stages(Sheet& sheet, const Snapshot& s) {
  const auto labels = [&](std::size_t i) {
    return Labels{{"stage", std::to_string(i)}, {"device", s.stages[i].device}};
  };
  const auto add = [&](const char* name, const char* help, MetricType type, const auto& value_of) {
    sheet.family(name, help, type);
    for (std::size_t i = 0; i < s.stages.size(); ++i) sheet.value(double(value_of(i)), labels(i));
  };
  sheet.family("millrace_stage_seconds", "Compute and hand-off of one step of a stage.",
               MetricType::Histogram);
  for (std::size_t i = 0; i < s.stages.size(); ++i) sheet.histogram(s.stages[i].busy, labels(i));
  add("millrace_updates_total", "Updates applied to a stage's weights.", MetricType::Counter,
      [&](std::size_t i) { return s.reading.updates[i]; });
  add("millrace_misses_total", "Steps of a stage that took longer than 1/F.", MetricType::Counter,
      [&](std::size_t i) { return s.reading.misses[i]; });
  add("millrace_gradient_age_frames",
      "Frames between the one whose loss made a gradient and the one it was applied on.",
      MetricType::Gauge, [&](std::size_t i) { return s.reading.gradient_age[i]; });
  add("millrace_dead_units", "Channels of a stage that their ReLU has silenced.", MetricType::Gauge,
      [&](std::size_t i) { return s.stages[i].dead; });
}

}  // namespace

std::string metrics_text(const Snapshot& s, int viewers) {
  Sheet sheet;
  sheet.counter("millrace_frames_received_total", "Frames that came from the source.",
                s.frames.received);
  sheet.counter("millrace_frames_trained_total", "Frames learned from.", s.frames.trained);
  sheet.counter("millrace_frames_dropped_total",
                "Frames a newer one took the place of, or that were predicted only.",
                s.frames.dropped);
  sheet.counter("millrace_frames_predicted_only_total",
                "Of the frames dropped: predicted, and not learned from.", s.frames.predicted_only);
  sheet.counter(
      "millrace_frames_replayed_total",
      "Samples learned from once more, in time that the stream left; in none of the others.",
      s.frames.replayed);
  sheet.counter("millrace_frames_rejected_total", "Frames no sample could be made of.",
                s.frames.rejected);
  add_stages(sheet, s);
  sheet.family("millrace_latency_seconds", "From a frame's capture to its prediction.",
               MetricType::Histogram);
  sheet.histogram(s.latency);
  sheet.family("millrace_loss", "Mean loss of the last 100 predictions.", MetricType::Gauge);
  sheet.value(s.loss_recent, {{"predictor", "network"}});
  for (const auto& [name, recent] : {std::pair{"mean_frame", s.mean_frame_recent},
                                     std::pair{"last_frame", s.last_frame_recent},
                                     std::pair{"linear", s.linear_recent}}) {
    if (std::isfinite(recent)) sheet.value(recent, {{"predictor", name}});
  }
  if (s.accuracy) {
    sheet.family("millrace_accuracy", "Share of the last 100 frames whose class was told.",
                 MetricType::Gauge);
    sheet.value(s.accuracy->recent, {{"predictor", "network"}});
    sheet.value(s.accuracy->majority, {{"predictor", "majority_class"}});
  }
  if (s.iou) {
    sheet.family("millrace_iou", "Mean intersection over union of the last 100 frames.",
                 MetricType::Gauge);
    sheet.value(s.iou->recent, {{"predictor", "network"}});
    sheet.value(s.iou->majority, {{"predictor", "majority_class"}});
  }
  if (s.psnr) {
    sheet.family("millrace_psnr_db", "Peak signal-to-noise ratio of the last 100 predictions.",
                 MetricType::Gauge);
    sheet.value(s.psnr->recent, {{"predictor", "network"}});
    sheet.value(s.psnr->mean_frame, {{"predictor", "mean_frame"}});
    if (std::isfinite(s.psnr->last_frame))
      sheet.value(s.psnr->last_frame, {{"predictor", "last_frame"}});
  }
  sheet.counter("millrace_unexpected_frames_total", "Frames whose loss was far above the usual.",
                s.unexpected);
  sheet.counter("millrace_unexpected_events_total", "Runs of unexpected frames.", s.events);
  sheet.gauge("millrace_loss_deviation",
              "Deviations of the last frame's loss above the usual; 0 while settling.",
              s.deviation);
  sheet.gauge("millrace_learning_rate", "Learning rate in force.", s.rate_in_force);
  sheet.counter("millrace_roll_backs_total", "Times the guard went back to earlier weights.",
                s.roll_backs);
  sheet.gauge("millrace_budget_seconds", "1/F: time there is for a frame; 0: no rate to hold.",
              s.reading.budget * 1e-3);
  sheet.gauge("millrace_real_time_holds",
              "1 if every frame of the last seconds was learned from in time, or there is no rate "
              "to hold; 0 while no frame is learned from.",
              s.verdict.holds);
  sheet.gauge("millrace_paused", "1 while training rests on demand.", s.paused);
  sheet.counter("millrace_checkpoints_written_total", "Checkpoints written.", s.saves);
  sheet.counter("millrace_checkpoints_failed_total", "Checkpoints that could not be written.",
                s.failed_saves);
  sheet.gauge("millrace_write_trouble", "1 while checkpoints or the log can't be written.",
              !s.trouble.empty());
  sheet.gauge("millrace_source_connected", "1 while pictures may come.", s.stream.connected);
  sheet.counter("millrace_source_breaks_total", "Times the stream broke off or fell silent.",
                s.stream.breaks);
  sheet.counter("millrace_source_reconnects_total", "Times pictures came again.",
                s.stream.reconnects);
  sheet.counter("millrace_source_lost_frames_total", "Estimate: frames that never reached us.",
                s.stream.lost_upstream);
  sheet.gauge("millrace_viewers", "Pages and picture streams being watched.", viewers);
  sheet.family("millrace_info", "What runs.", MetricType::Gauge);
  sheet.value(1, {{"version", s.version},
                  {"schedule", s.schedule},
                  {"task", s.task},
                  {"stages", std::to_string(s.stages.size())}});
  return sheet.text();
}

}  // namespace millrace::page
