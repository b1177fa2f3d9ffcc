// Files, network streams, cameras and pipelines through GStreamer's appsink, which reads with a
// time-out. cv::VideoCapture may hang forever.
#include <algorithm>
#include <filesystem>

#include "io/source/gst_pipeline.h"
#include "io/source/picture_headers.h"
#include "io/source/source_kinds.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::nanoseconds;

constexpr milliseconds kDrainLimit(500);
// A recording silent for this long has hung, or its demuxer has.
constexpr int kFileSilence = 3;  // times the limit for the first picture

double seconds(GstClockTime time) {
  return double(time) / double(GST_SECOND);
}

class GStreamerSource : public Source {
 public:
  GStreamerSource(const SourceOptions& options, bool live, bool wait)
      : options_(options), uri_(split_uri(options.uri)), live_(live) {
    start();
    if (wait) wait_for_first();
  }

  SourceInfo info() const override { return info_; }

  ReadStatus read(Frame& out, milliseconds timeout) override {
    const Clock::time_point before = Clock::now();
    const GstOwned<GstSample> sample = first_ ? std::move(first_) : pull(timeout);
    trouble_.look();  // thrown after all frames before the error
    if (!sample) return nothing_came(std::min<nanoseconds>(Clock::now() - before, timeout));
    silent_ = nanoseconds(0);
    if (!described_) describe(sample.get());
    copy(sample.get(), out);
    return ReadStatus::frame;
  }

  bool rewind() override {
    if (info_.live) return false;
    // Rebuilds the pipeline: not every demuxer or user's element can seek after the end.
    first_.reset();
    parts_ = {};
    start();
    wait_for_first();
    return true;
  }

 private:
  void start() {
    parts_ = build_pipeline(options_);
    reached_ = watch_extent(parts_.pipeline.get());
    trouble_ = GstTrouble(parts_.pipeline.get());
    end_ = 0;
    broken_since_ = {};
    silent_ = nanoseconds(0);
    described_ = false;
    gst_element_set_state(parts_.pipeline.get(), GST_STATE_PLAYING);
  }

  GstOwned<GstSample> pull(milliseconds timeout) {
    const GstClockTime wait = GstClockTime(timeout.count()) * GST_MSECOND;
    return GstOwned<GstSample>(gst_app_sink_try_pull_sample(parts_.sink, wait));
  }

  void wait_for_first() {
    const Clock::time_point limit = Clock::now() + options_.reconnect.open_limit;
    while (!(first_ = pull(milliseconds(20)))) {
      if (trouble_.look()) trouble_.raise(options_);
      if (gst_app_sink_is_eos(parts_.sink))
        throw source_error(options_, "there is no picture in it");
      if (Clock::now() > limit)
        throw source_error(options_, "no picture came within " +
                                         std::to_string(options_.reconnect.open_limit.count()) +
                                         " ms");
    }
    describe(first_.get());
  }

  // Fills info_ from the first picture and the running pipeline.
  void describe(GstSample* first) {
    constexpr double kClock = 500;  // per second: a recording of varying rate tells its clock's
    const GstVideoInfo video = format_of(first);
    const double told = rate_of(video);
    info_ = {.kind = "gstreamer",
             .caps = own_caps(gst_sample_get_caps(first)),
             .width = GST_VIDEO_INFO_WIDTH(&video),
             .height = GST_VIDEO_INFO_HEIGHT(&video),
             .fps = told < kClock ? plausible_rate(told) : 0,
             .live = is_live()};
    // A live playlist's parts have many frames each, which come at once.
    if (info_.live && reads_playlist(parts_.pipeline.get()))
      g_object_set(parts_.sink, "sync", TRUE, nullptr);
    // Among live streams, only a recording on an RTSP server has a duration.
    const bool lasts = !info_.live || uri_.is_rtsp();
    info_.duration_s = lasts ? duration() : 0.0;
    described_ = true;
  }

  /// 0: unknown.
  static gint64 length(GstElement* element, GstFormat format) {
    gint64 length = 0;
    const bool known = element && gst_element_query_duration(element, format, &length);
    return known ? std::max<gint64>(length, 0) : 0;
  }

  double duration() const {
    const double asked = seconds(GstClockTime(length(parts_.pipeline.get(), GST_FORMAT_TIME)));
    return uri_.is_file() ? std::max(asked, cut_avi_duration(file_path(uri_))) : asked;
  }

  // The stream's format before conversion, or after it if the user's own pipeline converts.
  std::string own_caps(GstCaps* converted) const {
    GstOwned<GstCaps> before;
    if (parts_.converter) {
      const GstOwned<GstPad> pad(gst_element_get_static_pad(parts_.converter, "sink"));
      before.reset(gst_pad_get_current_caps(pad.get()));
    }
    return GstOwned<gchar>(gst_caps_to_string(before ? before.get() : converted)).get();
  }

  bool is_live() const {
    if (live_ || (uri_.is_http() && is_endless())) return true;
    // Asks the element before the sink: a sink with sync=false always says no.
    const GstOwned<GstPad> pad(gst_element_get_static_pad(GST_ELEMENT(parts_.sink), "sink"));
    return is_fed_live(pad.get());
  }

  // Web cameras send an HTTP document of unknown length, live playlists a stream without duration.
  bool is_endless() const {
    GstElement* const pipeline = parts_.pipeline.get();
    return length(pipeline, GST_FORMAT_TIME) == 0 &&
           (reads_playlist(pipeline) || length(network_source().get(), GST_FORMAT_BYTES) == 0);
  }

  // Null without uridecodebin.
  GstOwned<GstElement> network_source() const {
    const GstOwned<GstElement> from = child(parts_.pipeline.get(), kFrom);
    GstElement* source = nullptr;
    if (from) g_object_get(from.get(), "source", &source, nullptr);
    return GstOwned<GstElement>(source);
  }

  /// `waited`: for the next frame, in this call.
  ReadStatus nothing_came(nanoseconds waited) {
    const bool ended = gst_app_sink_is_eos(parts_.sink);
    if (trouble_.found()) {
      const Clock::time_point now = Clock::now();
      if (broken_since_ == Clock::time_point{}) broken_since_ = now;
      if (ended || !described_ || now > broken_since_ + kDrainLimit) trouble_.raise(options_);
      return ReadStatus::timeout;
    }
    if (!ended) {
      const nanoseconds most = kFileSilence * options_.reconnect.open_limit;
      if (described_ && is_stored() && (silent_ += waited) > most)
        throw source_error(options_, "hangs: it neither ends nor gives another picture");
      return ReadStatus::timeout;
    }
    if ((uri_.is_file() || uri_.is_http()) && !info_.live)
      require_whole(options_, info_, seconds(std::max(end_, reached_->load())));
    return ReadStatus::end;
  }

  /// Whether this is a recording, which has no reason to pause, as a pipe may.
  bool is_stored() const {
    std::error_code ignored;
    return !info_.live && (uri_.is_http() || (uri_.is_file() && std::filesystem::is_regular_file(
                                                                    file_path(uri_), ignored)));
  }

  // Each sample has its own caps: the size may change at any frame.
  GstVideoInfo format_of(GstSample* sample) const {
    GstVideoInfo info;
    GstCaps* const caps = gst_sample_get_caps(sample);
    if (!caps || !gst_sample_get_buffer(sample) || !gst_video_info_from_caps(&info, caps))
      throw source_error(options_, "its appsink does not produce raw video");
    return info;
  }

  void copy(GstSample* sample, Frame& out) {
    const GstVideoInfo info = format_of(sample);
    GstBuffer* const buffer = gst_sample_get_buffer(sample);
    // A decoder whose input names no size has already decoded; stop its picture here.
    if (std::int64_t(info.width) * info.height > options_.max_pixels)
      throw source_error(options_, too_many_pixels(info.width, info.height, options_.max_pixels));
    const GstVideoFormat wanted = io::format_of(options_.channels);
    if (GST_VIDEO_INFO_FORMAT(&info) != wanted) {
      throw source_error(options_, std::string("its appsink gives ") + GST_VIDEO_INFO_NAME(&info) +
                                       ", but " + gst_video_format_to_string(wanted) +
                                       " is needed; put videoconvert before it");
    }
    if (!copy_pixels(buffer, info, out))
      throw source_error(options_, "a picture can't be read from memory");
    stamp(gst_sample_get_segment(sample), buffer, out);
  }

  // Running time is continuous where a pipeline joins streams; the stamps aren't.
  void stamp(const GstSegment* segment, GstBuffer* buffer, Frame& out) {
    const GstClockTime time = running_time(*segment, GST_BUFFER_PTS(buffer));
    const bool known = GST_CLOCK_TIME_IS_VALID(time);
    // Without a stamp, the end of the previous frame; the reader corrects it if necessary.
    const GstClockTime pts = std::min(known ? time : end_, GstClockTime(kLatest.count()));
    out.pts = std::chrono::nanoseconds(std::int64_t(pts));
    end_ = std::max(end_, pts + GstClockTime(frame_period(info_.fps).count()));
  }

  const SourceOptions options_;
  const Uri uri_;
  const bool live_;  // by its scheme
  SourceInfo info_;
  GstParts parts_;
  SharedTime reached_;  // on any track
  GstTrouble trouble_;
  bool described_ = false;     // info_ is this pipeline's
  GstOwned<GstSample> first_;  // arrived while opening, not read yet
  GstClockTime end_ = 0;       // of the latest frame
  Clock::time_point broken_since_;
  nanoseconds silent_{0};  // spent waiting for the next frame
};

}  // namespace

std::unique_ptr<Source> open_pipeline(const SourceOptions& options, bool live, bool wait) {
  return std::make_unique<GStreamerSource>(options, live, wait);
}

}  // namespace millrace::io
