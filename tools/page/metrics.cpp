#include <cmath>

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include "tools/page/json.h"

namespace millrace::page {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

/// A counter if its name ends in _total, otherwise a gauge.
struct Metric {
  const char *name, *help;
  const char* where;            ///< in Snapshot::state, or in one of its stages
  const char* value = nullptr;  ///< of the label "predictor"; of an object: its label; null: none
  double scale = 1;
};

// Entries of one name must be adjacent.
constexpr Metric kMetrics[] = {
    {"millrace_frames_received_total", "Frames received from the source.", "/frames/received"},
    {"millrace_frames_trained_total", "Frames learned from.", "/frames/trained"},
    {"millrace_frames_dropped_total", "Frames replaced by a newer one, or only predicted.",
     "/frames/dropped"},
    {"millrace_frames_predicted_only_total",
     "Dropped frames that were predicted but not learned from.", "/frames/predicted_only"},
    {"millrace_frames_replayed_total",
     "Samples replayed in spare time; counted in no other metric.", "/frames/replayed"},
    {"millrace_frames_rejected_total", "Frames that gave no sample.", "/frames/rejected"},
    {"millrace_loss", "Mean loss of the last 100 predictions.", "/loss/recent", "network"},
    {"millrace_loss", "", "/loss/mean_frame/recent", "mean_frame"},
    {"millrace_loss", "", "/loss/last_frame/recent", "last_frame"},
    {"millrace_loss", "", "/loss/linear/recent", "linear"},
    {"millrace_accuracy", "Share of the last 100 frames whose class was predicted correctly.",
     "/accuracy/recent", "network"},
    {"millrace_accuracy", "", "/accuracy/majority/recent", "majority_class"},
    {"millrace_iou", "Mean intersection over union of the last 100 frames.", "/iou/recent",
     "network"},
    {"millrace_iou", "", "/iou/majority/recent", "majority_class"},
    {"millrace_psnr_db", "Peak signal-to-noise ratio of the last 100 predictions.",
     "/psnr_db/recent", "network"},
    {"millrace_psnr_db", "", "/psnr_db/mean_frame/recent", "mean_frame"},
    {"millrace_psnr_db", "", "/psnr_db/last_frame/recent", "last_frame"},
    {"millrace_psnr_db", "", "/psnr_db/linear/recent", "linear"},
    {"millrace_unexpected_frames_total", "Pictures that were unlike what the stream had shown.",
     "/novelty/unexpected"},
    {"millrace_unexpected_events_total", "Events.", "/novelty/events"},
    {"millrace_events_by_reason_total", "Events of each reason.", "/novelty/by_reason", "reason"},
    {"millrace_loss_deviation",
     "How unlike the usual the last picture was, over novelty.threshold an event; 0 while "
     "settling.",
     "/novelty/deviation"},
    {"millrace_learning_rate", "Learning rate in force.", "/learning_rate"},
    {"millrace_roll_backs_total", "Times the guard went back to earlier weights.",
     "/guard/roll_backs"},
    {"millrace_budget_seconds", "1/F: the time per frame; 0: no rate to hold.",
     "/realtime/budget_ms", nullptr, 1e-3},
    {"millrace_real_time_holds",
     "1 if every frame of the last seconds was learned from in time, or there is no rate to hold; "
     "0 while no frame is learned from.",
     "/realtime/holds"},
    {"millrace_paused", "1 while training is paused.", "/controls/paused"},
    {"millrace_checkpoints_written_total", "Checkpoints written.", "/controls/saves"},
    {"millrace_checkpoints_failed_total", "Checkpoints that could not be written.",
     "/controls/failed_saves"},
    {"millrace_write_trouble", "1 while checkpoints or the log can't be written.",
     "/controls/trouble"},
    {"millrace_source_connected", "1 while the source is connected.", "/stream/connected"},
    {"millrace_source_breaks_total", "Times the stream broke off or fell silent.",
     "/stream/breaks"},
    {"millrace_source_reconnects_total", "Times the source came back.", "/stream/reconnects"},
    {"millrace_source_lost_frames_total", "Estimate: frames that never reached us.",
     "/stream/lost_upstream"},
};

constexpr Metric kStageMetrics[] = {
    {"millrace_updates_total", "Updates applied to a stage's weights.", "/updates"},
    {"millrace_misses_total", "Steps of a stage that took longer than 1/F.", "/misses"},
    {"millrace_gradient_age_frames",
     "Frames between the one whose loss gave the gradient and the one it was applied at.",
     "/gradient_age"},
    {"millrace_dead_units", "Channels of a stage that their ReLU has silenced.", "/dead_units"},
};

class Sheet {
 public:
  /// Leaves out values that are not finite: the run doesn't have them.
  void add(const Metric& metric, const Json& state, const std::string& in = "",
           Labels labels = {}) {
    if (const Json each = state.value(Json::json_pointer(in + metric.where), Json());
        each.is_object()) {
      for (const auto& [name, count] : each.items())
        add(metric.name, metric.help, count.get<double>(), {{metric.value, name}});
      return;
    }
    if (metric.value) labels.push_back({"predictor", metric.value});
    add(metric.name, metric.help, number_at(state, in + metric.where) * metric.scale,
        std::move(labels));
  }
  void add(const std::string& name, const std::string& help, double number, Labels labels = {}) {
    if (!std::isfinite(number)) return;
    const bool counts = name.ends_with("_total");
    ClientMetric& metric =
        next(name, help, counts ? MetricType::Counter : MetricType::Gauge, std::move(labels));
    (counts ? metric.counter.value : metric.gauge.value) = number;
  }
  void add(const std::string& name, const std::string& help, const engine::Histogram& durations,
           Labels labels = {}) {
    ClientMetric::Histogram& histogram =
        next(name, help, MetricType::Histogram, std::move(labels)).histogram;
    for (double bound = 16e-6; bound < 17; bound *= 2) {  // seconds
      histogram.bucket.push_back({.cumulative_count = std::uint64_t(durations.at_most(bound * 1e9)),
                                  .upper_bound = bound});
    }
    histogram.sample_count = std::uint64_t(durations.count());
    histogram.sample_sum = durations.sum() * 1e-9;
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  ClientMetric& next(const std::string& name, const std::string& help, MetricType type,
                     Labels labels) {
    if (families_.empty() || families_.back().name != name)
      families_.push_back({.name = name, .help = help, .type = type, .metric = {}});
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }
  std::vector<MetricFamily> families_;
};

}  // namespace

std::string metrics_text(const Snapshot& now, int viewers) {
  const Json& state = now.state;
  Sheet sheet;
  for (const Metric& metric : kMetrics) sheet.add(metric, state);
  sheet.add("millrace_frames_without_target_total",
            "Rejected frames that were predicted but had no target.",
            double(now.frames.without_target));
  const auto place = [](std::size_t stage) { return "/stages/" + std::to_string(stage); };
  const auto labels = [&](std::size_t stage) {
    return Labels{{"stage", std::to_string(stage)},
                  {"device", text_at(state, place(stage) + "/device")}};
  };
  for (std::size_t i = 0; i < now.busy.size(); ++i) {
    sheet.add("millrace_stage_seconds", "Compute and hand-off of one step of a stage.", now.busy[i],
              labels(i));
  }
  for (const Metric& metric : kStageMetrics)
    for (std::size_t i = 0; i < now.busy.size(); ++i) sheet.add(metric, state, place(i), labels(i));
  sheet.add("millrace_latency_seconds", "From a frame's capture to its prediction.", now.latency);
  sheet.add("millrace_viewers", "Pages and picture streams being watched.", viewers);
  sheet.add("millrace_info", "What runs.", 1,
            {{"version", text_at(state, "/version")},
             {"schedule", text_at(state, "/schedule")},
             {"task", text_at(state, "/task")},
             {"stages", std::to_string(now.busy.size())}});
  return sheet.text();
}

}  // namespace millrace::page
