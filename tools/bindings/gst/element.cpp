#include "tools/bindings/gst/element.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "engine/format.h"
#include "io/source/gst_handles.h"

namespace millrace::gst {
namespace {

// Pictures that may wait to be pushed: those of the reported latency, and some more.
constexpr int kRoom = 16;
constexpr double kUsualRate = 25;  // frames per second assumed without a rate

std::vector<std::string> lines_of(std::string text) {
  std::ranges::replace(text, '\n', ';');
  std::vector<std::string> lines = engine::split(text, ";");
  std::erase_if(lines,
                [](const std::string& line) { return line.find_first_not_of(" \t") == line.npos; });
  return lines;
}

/// 0: unknown.
double rate_of(const GstVideoInfo& info) {
  double fps = 0;
  if (GST_VIDEO_INFO_FPS_N(&info) > 0)
    gst_util_fraction_to_double(GST_VIDEO_INFO_FPS_N(&info), GST_VIDEO_INFO_FPS_D(&info), &fps);
  return fps;
}

/// The config from the properties; `sink` names the source in the report. Throws ConfigError.
app::Config config_of(const Settings& settings, const std::string& sink) {
  app::Config config = app::load_config(settings.config, lines_of(settings.set));
  config.source.uri = "gst:" + sink;  // for the report; it is not opened
  if (!settings.schedule.empty()) config.set("pipeline.schedule", settings.schedule);
  if (!settings.report.empty()) config.output.report = settings.report;
  if (settings.weights.empty()) return config;
  config.output.weights = settings.weights;
  if (std::filesystem::exists(settings.weights)) config.weights.file = settings.weights;
  return config;
}

}  // namespace

Element::Element(GstElement* element, GstPad* sink, GstPad* src)
    : element_(element), sink_(sink), src_(src), outlet_(kRoom) {
  gst_segment_init(&segment_, GST_FORMAT_TIME);
}

Settings Element::copy_of_settings() const {
  GST_OBJECT_LOCK(element_);
  Settings copy = settings;
  GST_OBJECT_UNLOCK(element_);
  return copy;
}

void Element::settings_changed() {
  const double rate = copy_of_settings().rate;
  with_learner([&](Learner& learner) { learner.set_rate(rate); });
}

GstStructure* Element::stats() const {
  std::int64_t lost = 0;
  with_learner([&](Learner& learner) { lost = learner.mailbox().lost(); });
  return gst_structure_new("millrace-stats", "frames", G_TYPE_INT64, position_.load(), "lost",
                           G_TYPE_INT64, lost, "pictures", G_TYPE_INT64, pushed_.load(), "late",
                           G_TYPE_INT64, late_.load(), "not-shown", G_TYPE_INT64, outlet_.dropped(),
                           "loss", G_TYPE_DOUBLE, outlet_.loss(), nullptr);
}

bool Element::read_config() {
  try {
    config_ = config_of(copy_of_settings(), std::string(GST_OBJECT_NAME(element_)) + ".sink");
    return true;
  } catch (const std::exception& error) {
    GST_ELEMENT_ERROR(element_, RESOURCE, SETTINGS, ("%s", error.what()), (nullptr));
    return false;
  }
}

void Element::reset() {
  outlet_.reset();
  position_ = pushed_ = late_ = 0;
  eos_ = false;
  downstream_ = GST_FLOW_OK;
  earliest_ = GST_CLOCK_TIME_NONE;
  latency_ = 0;
  picture_.reset();
  in_.reset();
  gst_segment_init(&segment_, GST_FORMAT_TIME);
  discont_ = true;
}

void Element::unblock() {
  with_learner([](Learner& learner) { learner.mailbox().end(); });
  outlet_.flush(true, position_);
}

void Element::start_learner() {
  const io::GstOwned<GstQuery> query(gst_query_new_latency());
  gboolean live = FALSE;
  if (gst_pad_peer_query(sink_, query.get()))
    gst_query_parse_latency(query.get(), &live, nullptr, nullptr);
  io::SourceInfo info;
  info.kind = "gstreamer";
  info.width = GST_VIDEO_INFO_WIDTH(&*in_);
  info.height = GST_VIDEO_INFO_HEIGHT(&*in_);
  info.fps = rate_of(*in_);
  info.live = live;
  live_ = live;
  auto learner = std::make_unique<Learner>(config_, info, copy_of_settings(), element_, outlet_);
  const std::lock_guard lock(mutex_);
  learner_ = std::move(learner);
}

void Element::finish() {
  std::unique_ptr<Learner> ended;
  {
    const std::lock_guard lock(mutex_);
    ended = std::move(learner_);
  }
}

GstClockTime Element::frame_time() const {
  double fps = config_.monitor.fps;
  const std::lock_guard lock(mutex_);
  if (fps <= 0 && in_) fps = rate_of(*in_);
  return GstClockTime(double(GST_SECOND) / (fps > 0 ? fps : kUsualRate));
}

}  // namespace millrace::gst
