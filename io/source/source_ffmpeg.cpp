// Files that GStreamer or OpenCV cannot decode, through FFmpeg's libraries.
#include <cstdio>
#include <memory>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libswscale/swscale.h>
}

#include <opencv2/imgcodecs.hpp>

#include "io/source/codecs.h"
#include "io/source/picture_headers.h"
#include "io/source/source_kinds.h"

namespace millrace::io {
namespace {

struct Release {
  void operator()(std::FILE* file) const { std::fclose(file); }
  void operator()(AVIOContext* bytes) const {
    av_freep(&bytes->buffer);
    avio_context_free(&bytes);
  }
  void operator()(AVFormatContext* recording) const { avformat_close_input(&recording); }
  void operator()(AVCodecContext* decoder) const { avcodec_free_context(&decoder); }
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  void operator()(AVFrame* picture) const { av_frame_free(&picture); }
  void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
};
template <typename T>
using Owned = std::unique_ptr<T, Release>;

int read_bytes(void* file, std::uint8_t* to, int count) {
  const std::size_t got = std::fread(to, 1, std::size_t(count), static_cast<std::FILE*>(file));
  return got > 0 ? int(got) : AVERROR_EOF;
}

std::int64_t seek_to(void* opaque, std::int64_t at, int whence) {
  auto* const file = static_cast<std::FILE*>(opaque);
  if (whence != AVSEEK_SIZE)
    return fseeko(file, at, whence & ~AVSEEK_FORCE) == 0 ? ftello(file) : -1;
  const off_t here = ftello(file);
  const std::int64_t size = fseeko(file, 0, SEEK_END) == 0 ? ftello(file) : -1;
  return fseeko(file, here, SEEK_SET) == 0 ? size : -1;
}

/// FFmpeg's latest complaint on this thread.
thread_local std::string ffmpeg_complaint;

void hear(void*, int level, const char* format, va_list values) {
  if (level > AV_LOG_ERROR) return;
  char text[200];
  std::vsnprintf(text, sizeof text, format, values);
  ffmpeg_complaint = text;
  ffmpeg_complaint.erase(ffmpeg_complaint.find_last_not_of(" .\n") + 1);
}

std::string why(const std::string& what, int error) {
  char text[AV_ERROR_MAX_STRING_SIZE] = "";
  av_strerror(error, text, sizeof text);
  return what + " (" + (ffmpeg_complaint.empty() ? text : ffmpeg_complaint) + ")";
}

/// An open file, before anything in it is decoded. Follows no reference to another file.
struct Recording {
  explicit Recording(const std::string& path) : file(std::fopen(path.c_str(), "rbe")) {
    if (!file) return;
    av_log_set_callback(hear);
    ffmpeg_complaint.clear();
    constexpr int kBuffer = 1 << 15;
    bytes.reset(avio_alloc_context(static_cast<std::uint8_t*>(av_malloc(kBuffer)), kBuffer, 0,
                                   file.get(), read_bytes, nullptr, seek_to));
    AVFormatContext* opened = avformat_alloc_context();
    opened->pb = bytes.get();
    // Lists and playlists name other files; none of them is opened.
    AVDictionary* options = nullptr;
    av_dict_set(&options, "protocol_whitelist", "none", 0);
    error = avformat_open_input(&opened, path.c_str(), nullptr, &options);
    av_dict_free(&options);
    if (error == 0) format.reset(opened);  // otherwise already freed
  }

  /// The stream of the largest pictures other than a cover; null: none.
  AVStream* video() const {
    const auto pixels = [](const AVStream* stream) {
      return std::int64_t(stream->codecpar->width) * stream->codecpar->height;
    };
    AVStream* largest = nullptr;
    for (unsigned n = 0; format && n < format->nb_streams; ++n) {
      AVStream* const stream = format->streams[n];
      if (stream->codecpar->codec_type == AVMEDIA_TYPE_VIDEO &&
          !(stream->disposition & AV_DISPOSITION_ATTACHED_PIC) &&
          (!largest || pixels(stream) > pixels(largest)))
        largest = stream;
    }
    return largest;
  }

  Owned<std::FILE> file;
  Owned<AVIOContext> bytes;
  Owned<AVFormatContext> format;  // closed first
  int error = AVERROR(EIO);
};

const std::int32_t* stream_matrix(const AVStream& stream) {
  return reinterpret_cast<const std::int32_t*>(
      av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr));
}

/// EXIF orientation of a display matrix of quarter turns; null: 1.
int orientation_of(const std::int32_t* matrix) {
  if (!matrix) return 1;
  const bool aside = matrix[0] == 0 && matrix[1] != 0;
  const bool across = matrix[aside ? 3 : 0] < 0, down = matrix[aside ? 1 : 4] < 0;
  return 1 + 4 * aside + (down ? 3 - across : across);
}

class FfmpegSource : public Source {
 public:
  FfmpegSource(const SourceOptions& options, const std::string& path)
      : options_(options), path_(path) {
    open();
    info_.kind = "ffmpeg";
    info_.caps = std::string("FFmpeg ") + avcodec_get_name(decoder_->codec_id);
    info_.fps = plausible_rate(av_q2d(stream_->avg_frame_rate));
    if (stream_->duration > 0) info_.duration_s = double(stream_->duration) * tick();
    ReadStatus status = ReadStatus::corrupt;
    while (status == ReadStatus::corrupt) status = read(first_, {});
    if (status == ReadStatus::end)
      throw source_error(options_, wrong_.empty() ? "there is no picture in it" : wrong_);
    info_.width = first_.width;
    info_.height = first_.height;
  }

  SourceInfo info() const override { return info_; }

  ReadStatus read(Frame& out, std::chrono::milliseconds) override {
    if (first_.width > 0) {
      std::swap(out, first_);
      first_.width = 0;
      return ReadStatus::frame;
    }
    const int error = decode();
    if (error == AVERROR_EOF) {
      require_whole(options_, info_, reached_s_);
      return ReadStatus::end;
    }
    if (error == 0 && picture_->decode_error_flags == 0) {
      show(out);
      return ReadStatus::frame;
    }
    wrong_ = error == 0 ? "FFmpeg finds it damaged" : why("FFmpeg cannot decode it", error);
    return ReadStatus::corrupt;
  }

  bool rewind() override {
    open();
    return true;
  }

 private:
  double tick() const { return av_q2d(stream_->time_base); }

  void open() {
    first_.width = 0;
    reached_s_ = 0.0;
    begun_ = false;
    decoder_.reset();
    recording_ = std::make_unique<Recording>(path_);
    if (!recording_->format)
      throw source_error(options_, why("FFmpeg cannot read it", recording_->error));
    AVFormatContext& format = *recording_->format;
    // Streams of a format without header appear later, and would be decoded without the bound.
    if (!(format.ctx_flags & AVFMTCTX_NOHEADER)) {
      std::vector<AVDictionary*> bounds(format.nb_streams);
      for (AVDictionary*& bound : bounds) av_dict_set_int(&bound, "max_pixels", bound_pixels(), 0);
      avformat_find_stream_info(&format, bounds.data());
      for (AVDictionary*& bound : bounds) av_dict_free(&bound);
    }
    stream_ = recording_->video();
    if (!stream_) throw source_error(options_, "there is no video in it");
    check({stream_->codecpar->width, stream_->codecpar->height});
    const AVCodec* const codec = avcodec_find_decoder(stream_->codecpar->codec_id);
    decoder_.reset(avcodec_alloc_context3(codec));
    if (!codec || !decoder_) throw source_error(options_, "FFmpeg has no decoder for it");
    avcodec_parameters_to_context(decoder_.get(), stream_->codecpar);
    decoder_->max_pixels = bound_pixels();
    decoder_->pkt_timebase = stream_->time_base;
    decoder_->thread_count = 0;  // as many as cores
    if (const int error = avcodec_open2(decoder_.get(), codec, nullptr))
      throw source_error(options_, why("FFmpeg cannot decode it", error));
  }

  /// Includes the rows that a decoder pads to 64 pixels.
  std::int64_t bound_pixels() const {
    return options_.max_pixels + 64 * std::min<std::int64_t>(options_.max_pixels, 1 << 16);
  }
  void check(const PictureSize& size) const {
    if (size.height > 0 && size.exceeds(options_.max_pixels))
      throw source_error(options_, too_many_pixels(size.width, size.height, options_.max_pixels));
  }

  /// Decodes the next picture; returns 0, FFmpeg's error or AVERROR_EOF.
  int decode() {
    for (;;) {
      const int error = avcodec_receive_frame(decoder_.get(), picture_.get());
      if (error != AVERROR(EAGAIN)) return error;
      if (const int failed = feed(); failed < 0) return failed;
    }
  }

  int feed() {
    if (av_read_frame(recording_->format.get(), packet_.get()) < 0)
      return avcodec_send_packet(decoder_.get(), nullptr);
    const AVStream& from = *recording_->format->streams[packet_->stream_index];
    if (packet_->pts != AV_NOPTS_VALUE) {
      const std::int64_t start = from.start_time != AV_NOPTS_VALUE ? from.start_time : 0;
      const double end = double(packet_->pts + packet_->duration - start) * av_q2d(from.time_base);
      reached_s_ = std::max(reached_s_, end);
    }
    const bool ours = &from == stream_;
    const int failed = ours ? avcodec_send_packet(decoder_.get(), packet_.get()) : 0;
    av_packet_unref(packet_.get());
    return failed;
  }

  void show(Frame& out) {
    check({picture_->width, picture_->height});
    const bool grey = options_.channels == 1;
    scaled_->format = grey ? AV_PIX_FMT_GRAY8 : AV_PIX_FMT_RGB24;
    if (scaled_->width != picture_->width || scaled_->height != picture_->height) {
      const int format = scaled_->format;
      av_frame_unref(scaled_.get());
      scaled_->format = format;
      scaled_->width = picture_->width;
      scaled_->height = picture_->height;
      av_frame_get_buffer(scaled_.get(), 64);  // a scaler may write beyond the end of a row
    }
    convert();
    const AVFrameSideData* const own =
        av_frame_get_side_data(picture_.get(), AV_FRAME_DATA_DISPLAYMATRIX);
    const int orientation = orientation_of(own ? reinterpret_cast<const std::int32_t*>(own->data)
                                               : stream_matrix(*stream_));
    const cv::Mat from(scaled_->height, scaled_->width, grey ? CV_8UC1 : CV_8UC3, scaled_->data[0],
                       std::size_t(scaled_->linesize[0]));
    const bool aside = lies_aside(orientation);
    out.reshape(aside ? from.rows : from.cols, aside ? from.cols : from.rows, options_.channels);
    cv::Mat to(out.height, out.width, from.type(), out.pixels.data());
    turn(from, orientation, to);
    stamp(out);
  }

  /// Takes colours as FFmpeg's own scale filter does.
  void convert() {
    const auto from = AVPixelFormat(picture_->format);
    scaler_.reset(sws_getCachedContext(
        scaler_.release(), picture_->width, picture_->height, from, picture_->width,
        picture_->height, AVPixelFormat(scaled_->format), SWS_BICUBIC, nullptr, nullptr, nullptr));
    if (!scaler_) throw source_error(options_, "FFmpeg cannot convert its pixel format");
    int *unused = nullptr, *to = nullptr, full = 0, to_full = 0, light = 0, contrast = 0,
        colour = 0;
    sws_getColorspaceDetails(scaler_.get(), &unused, &full, &to, &to_full, &light, &contrast,
                             &colour);
    if (picture_->color_range != AVCOL_RANGE_UNSPECIFIED)
      full = picture_->color_range == AVCOL_RANGE_JPEG;
    const bool yuv = picture_->colorspace != AVCOL_SPC_RGB;
    sws_setColorspaceDetails(scaler_.get(),
                             sws_getCoefficients(yuv ? picture_->colorspace : SWS_CS_DEFAULT), full,
                             to, to_full, light, contrast, colour);
    sws_scale(scaler_.get(), picture_->data, picture_->linesize, 0, picture_->height, scaled_->data,
              scaled_->linesize);
  }

  /// A picture without a time follows the previous one.
  void stamp(Frame& out) {
    const std::int64_t start = stream_->start_time != AV_NOPTS_VALUE ? stream_->start_time : 0;
    const std::int64_t at = picture_->best_effort_timestamp;
    if (at != AV_NOPTS_VALUE)
      out.pts = stamp_of(double(at - start) * tick());
    else
      out.pts = begun_ ? last_ + frame_period(info_.fps) : std::chrono::nanoseconds(0);
    last_ = out.pts;
    begun_ = true;
  }

  const SourceOptions options_;
  const std::string path_;
  SourceInfo info_;
  std::unique_ptr<Recording> recording_;
  AVStream* stream_ = nullptr;  // of the recording
  Owned<AVCodecContext> decoder_;
  const Owned<AVPacket> packet_{av_packet_alloc()};
  const Owned<AVFrame> picture_{av_frame_alloc()}, scaled_{av_frame_alloc()};
  Owned<SwsContext> scaler_;
  Frame first_;             // decoded while opening; width 0: read since
  bool begun_ = false;      // a picture was decoded
  std::string wrong_;       // cause of the latest undecodable picture
  double reached_s_ = 0.0;  // on any track
  std::chrono::nanoseconds last_{0};
};

bool alone_turns(const std::string& path) {
  const Recording recording(path);
  const AVStream* const video = recording.video();
  return video && orientation_of(stream_matrix(*video)) == 7;
}

std::unique_ptr<Source> open(const SourceOptions& options, const std::string& path) {
  return std::make_unique<FfmpegSource>(options, path);
}

std::string encode(const cv::Mat& picture, int quality) {
  std::vector<std::uint8_t> file;
  if (quality > 0)
    cv::imencode(".jpg", picture, file, {cv::IMWRITE_JPEG_QUALITY, quality});
  else
    cv::imencode(".png", picture, file);
  return {file.begin(), file.end()};
}

}  // namespace

const Codecs millrace_codecs = {cv::imread, encode, open, alone_turns};

}  // namespace millrace::io
