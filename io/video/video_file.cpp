#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "io/files/whole_file.h"
#include "io/source/gst_pipeline.h"
#include "io/source/uri.h"
#include "io/video/gstreamer.h"
#include "io/video/video_feed.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

// For the encoder to finish and the muxer to write its index.
constexpr GstClockTime kFinishLimit = 30 * GST_SECOND;

// Encoders refuse smaller pictures or encode them badly.
constexpr int kLeastSide = 16;

struct Encoder {
  const char* element;
  const char* settings;  ///< $bits, $kbits and $frames per second
  const char* parser;
  const char* payloader;  ///< for RTSP
  bool in_mp4;
};

// The first installed one is used. (In GStreamer 1.22 libav's MPEG-4 loses the pictures' times, and
// VP9 in MP4 crashes the muxer.) Each uses one thread: the other cores are for training.
constexpr Encoder kEncoders[] = {
    {"x264enc",
     "tune=zerolatency speed-preset=veryfast threads=1 bitrate=$kbits key-int-max=$frames",
     "h264parse", "rtph264pay config-interval=-1", true},
    {"openh264enc", "complexity=low multi-thread=1 bitrate=$bits gop-size=$frames", "h264parse",
     "rtph264pay config-interval=-1", true},
    {"vp8enc", "deadline=1 cpu-used=8 threads=1 target-bitrate=$bits keyframe-max-dist=$frames",
     "identity", "rtpvp8pay", false},
    {"jpegenc", "quality=85", "jpegparse", "rtpjpegpay", false},
};

bool installed(const char* element) {
  return GstOwned<GstElementFactory>(gst_element_factory_find(element)) != nullptr;
}

const Encoder& best_encoder(const VideoWriterOptions& options, VideoUse use) {
  for (const Encoder& one : kEncoders) {
    if (use == VideoUse::mp4 && !one.in_mp4) continue;
    const std::string payloader = one.payloader;
    const bool served = installed(payloader.substr(0, payloader.find(' ')).c_str());
    if (installed(one.element) && installed(one.parser) && (use != VideoUse::rtsp || served))
      return one;
  }
  throw std::runtime_error(options.to + ": GStreamer has no encoder for it here");
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

// The least integer factor that makes the sides even and large enough.
int zoom(int width, int height) {
  int factor = (kLeastSide + std::min(width, height) - 1) / std::min(width, height);
  if ((width * factor) % 2 || (height * factor) % 2) factor += factor % 2;
  return factor;
}

// OpenH264 complains on stderr at EOS. It holds no frame back, so EOS bypasses it.
void keep_quiet_at_end(GstElement* encoder) {
  const std::string_view kind = GST_OBJECT_NAME(gst_element_get_factory(encoder));
  if (kind != "openh264enc") return;
  const GstOwned<GstPad> in(gst_element_get_static_pad(encoder, "sink"));
  add_probe(in.get(), GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, [encoder](GstPad*, auto* info) {
    GstEvent* const event = gst_pad_probe_info_get_event(info);
    if (GST_EVENT_TYPE(event) != GST_EVENT_EOS) return GST_PAD_PROBE_OK;
    const GstOwned<GstPad> out(gst_element_get_static_pad(encoder, "src"));
    gst_pad_push_event(out.get(), gst_event_ref(event));
    return GST_PAD_PROBE_DROP;
  });
}

// Unfinished files play to their last second: MP4 fragments, merged at the end; MKV clusters.
constexpr char kMp4[] = "mp4mux fragment-duration=1000 fragment-mode=first-moov-then-finalise";
constexpr char kMatroska[] = "matroskamux";

class VideoFile : public VideoWriter {
 public:
  explicit VideoFile(const VideoWriterOptions& options)
      : path_(options.to),
        part_(path_ + ".part"),
        every_frame_(options.every_frame),
        feed_(options) {
    const bool mp4 = path_.ends_with(".mp4");
    make_folder();
    claim();
    build("appsrc name=from ! " + encoder_text(options, mp4 ? VideoUse::mp4 : VideoUse::mkv) +
          " ! " + (mp4 ? kMp4 : kMatroska) + " ! filesink name=to");
  }
  ~VideoFile() override {
    try {
      if (!finished_) finish();
    } catch (const std::exception&) {
    }
  }

  void write(const Frame& frame) override {
    if (first_ < std::chrono::nanoseconds(0)) first_ = frame.pts;
    count(feed_.push(from_, frame, GstClockTime((frame.pts - first_).count()), every_frame_));
  }

  void finish() override {
    finished_ = true;
    if (written() > 0) {
      gst_app_src_end_of_stream(from_);
      wait_for_end();
    }
    pipeline_.reset();
    std::error_code ignored;
    if (written() > 0)
      put_in_place(part_, path_);
    else
      fs::remove(part_, ignored);
  }

  std::string where() const override { return path_; }

 private:
  [[noreturn]] void fail(const std::string& cause) const {
    throw std::runtime_error(path_ + ": " + cause);
  }

  void make_folder() const {
    const fs::path folder = fs::path(path_).parent_path();
    std::error_code error;
    if (!folder.empty()) fs::create_directories(folder, error);
    if (error) fail(error.message());
    if (fs::is_directory(path_, error)) fail("is a folder");
  }

  /// Locks the file: two runs writing it would mix their frames.
  void claim() {
    claim_ = Descriptor(::open(part_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (claim_ && ::flock(claim_.get(), LOCK_EX | LOCK_NB) == 0) return;
    fail(errno == EWOULDBLOCK ? "another run writes it" : std::strerror(errno));
  }

  void build(const std::string& text) {
    GError* raw_error = nullptr;
    pipeline_.reset(gst_parse_launch(text.c_str(), &raw_error));
    const GstOwned<GError> error(raw_error);
    if (error) fail(error->message);
    gst_object_ref_sink(pipeline_.get());
    const auto part = [this](const char* name) { return child(pipeline_.get(), name); };
    const GstOwned<GstElement> from = part("from"), to = part("to"), encoder = part("encoder");
    from_ = GST_APP_SRC_CAST(from.get());  // the pipeline owns it
    feed_.set_up(from_);
    keep_quiet_at_end(encoder.get());
    g_object_set(to.get(), "location", part_.c_str(), nullptr);
    if (gst_element_set_state(pipeline_.get(), GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE)
      wait_for_end();  // throws what went wrong
  }

  void wait_for_end() {
    const GstOwned<GstBus> bus(gst_element_get_bus(pipeline_.get()));
    const GstOwned<GstMessage> last(gst_bus_timed_pop_filtered(
        bus.get(), kFinishLimit, GstMessageType(GST_MESSAGE_EOS | GST_MESSAGE_ERROR)));
    if (last && GST_MESSAGE_TYPE(last.get()) == GST_MESSAGE_EOS) return;
    GError* raw_error = nullptr;
    if (last) gst_message_parse_error(last.get(), &raw_error, nullptr);
    const GstOwned<GError> error(raw_error);
    fail(error ? error->message : "was not finished in 30 s");
  }

  const std::string path_;
  const std::string part_;
  const bool every_frame_;
  Descriptor claim_;  ///< part_, locked
  VideoFeed feed_;
  GstRunning pipeline_;
  GstAppSrc* from_ = nullptr;
  std::chrono::nanoseconds first_{-1};  // pts of the first frame
  bool finished_ = false;
};

std::string version() {
  guint major = 0, minor = 0, micro = 0, nano = 0;
  gst_version(&major, &minor, &micro, &nano);  // works without gst_init
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(micro);
}

std::unique_ptr<VideoWriter> open_writer(const VideoWriterOptions& options) {
  if (split_uri(options.to).scheme == "rtsp") return open_video_server(options);
  start_gstreamer();
  return std::make_unique<VideoFile>(options);
}

}  // namespace

std::string encoder_text(const VideoWriterOptions& options, VideoUse use) {
  const Encoder& encoder = best_encoder(options, use);
  const int factor = zoom(options.width, options.height);
  const long width = long(options.width) * factor, height = long(options.height) * factor;
  const double fps = rate_or_default(options.fps);
  const long bits = std::clamp(std::lround(double(width * height) * fps * 0.2), 300000l, 20000000l);

  std::string text = "videoconvert";
  if (factor > 1) {
    text = "videoscale method=nearest-neighbour ! video/x-raw,width=" + std::to_string(width) +
           ",height=" + std::to_string(height) + " ! " + text;
  }
  text += " ! video/x-raw,format=I420 ! " + std::string(encoder.element) + " name=encoder " +
          encoder.settings + " ! " + encoder.parser;
  if (use == VideoUse::rtsp) text += " ! " + std::string(encoder.payloader) + " name=pay0";
  replace_all(text, "$kbits", std::to_string(bits / 1000));
  replace_all(text, "$bits", std::to_string(bits));
  replace_all(text, "$frames", std::to_string(std::max(1l, std::lround(fps))));
  return text;
}

const GStreamer millrace_gstreamer = {open_pipeline, open_writer, version};

}  // namespace millrace::io
