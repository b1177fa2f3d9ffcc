// Files that GStreamer cannot decode, through OpenCV's FFmpeg.
#include <utility>

#include <opencv2/core/utility.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgproc.hpp>
#include <opencv2/videoio.hpp>

#include "io/source/picture_headers.h"
#include "io/source/source_kinds.h"

namespace millrace::io {
namespace {

class OpenCvSource : public Source {
 public:
  OpenCvSource(const SourceOptions& options, const std::string& path)
      : options_(options), path_(path) {
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    open();
    info_.kind = "opencv";
    info_.caps = fourcc();
    info_.width = picture_.cols;
    info_.height = picture_.rows;
    const double fps = capture_.get(cv::CAP_PROP_FPS);
    // FFmpeg returns the time base if it doesn't know the rate.
    if (fps <= 1000.0) info_.fps = plausible_rate(fps);
    const double frames = capture_.get(cv::CAP_PROP_FRAME_COUNT);
    if (frames > 0.0 && info_.fps > 0.0) info_.duration_s = frames / info_.fps;
  }

  SourceInfo info() const override { return info_; }

  ReadStatus read(Frame& out, std::chrono::milliseconds) override {
    if (!seen_ && !capture_.read(picture_)) {
      if (info_.duration_s > 0.0)
        require_whole(options_, position_s_ + 1.0 / info_.fps, info_.duration_s);
      return ReadStatus::end;
    }
    seen_ = false;
    check({picture_.cols, picture_.rows});
    out.reshape(picture_.cols, picture_.rows, options_.channels);
    cv::Mat to(out.height, out.width, options_.channels == 1 ? CV_8UC1 : CV_8UC3,
               out.pixels.data());
    cv::cvtColor(picture_, to, options_.channels == 1 ? cv::COLOR_BGR2GRAY : cv::COLOR_BGR2RGB);
    // Of some files OpenCV knows no times.
    const double at = capture_.get(cv::CAP_PROP_POS_MSEC) / 1e3;
    const double next = position_s_ + (info_.fps > 0.0 ? 1.0 / info_.fps : 0.0);
    position_s_ = std::exchange(begun_, true) && at <= position_s_ ? next : at;
    out.pts = stamp_of(position_s_);
    return ReadStatus::frame;
  }

  bool rewind() override {
    open();
    return true;
  }

 private:
  void open() {
    position_s_ = 0.0;
    begun_ = false;
    // FFmpeg decodes a picture to learn its format.
    const std::optional<PictureSize> size = declared_size(path_);
    if (!size) throw source_error(options_, "its header tells no size");
    check(*size);
    seen_ = capture_.open(path_, cv::CAP_FFMPEG) && capture_.read(picture_);
    if (!seen_) throw source_error(options_, "OpenCV can't decode it");
  }

  void check(const PictureSize& size) const {
    if (size.exceeds(options_.max_pixels))
      throw source_error(options_, too_many_pixels(size.width, size.height, options_.max_pixels));
  }

  std::string fourcc() const {
    const int code = int(capture_.get(cv::CAP_PROP_FOURCC));
    std::string text = "FFmpeg ";
    for (int shift = 0; shift < 32; shift += 8) {
      const char letter = char(code >> shift & 0xff);
      if (letter > ' ') text += letter;
    }
    return text;
  }

  const SourceOptions options_;
  const std::string path_;
  SourceInfo info_;
  cv::VideoCapture capture_;
  cv::Mat picture_;
  bool seen_ = false;        // picture_ holds the first frame, not read yet
  bool begun_ = false;       // position_s_ is known
  double position_s_ = 0.0;  // of the latest frame
};

}  // namespace

std::unique_ptr<Source> open_opencv(const SourceOptions& options, const std::string& path) {
  return std::make_unique<OpenCvSource>(options, path);
}

std::string opencv_version() {
  return cv::getVersionString();
}

}  // namespace millrace::io
