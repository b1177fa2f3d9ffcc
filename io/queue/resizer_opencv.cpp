#include <opencv2/imgproc.hpp>

#include "io/queue/resizer.h"

namespace millrace::io {

void Resizer::scale(const Frame& frame, const Placement& placement) {
  const auto rectangle = [](const Region& r) { return cv::Rect(r.x, r.y, r.width, r.height); };
  const int type = CV_MAKETYPE(CV_8U, frame.channels);
  // cv::Mat takes no pointer to const, but resize only reads its source.
  const cv::Mat whole(frame.height, frame.width, type,
                      const_cast<std::uint8_t*>(frame.pixels.data()));
  const cv::Mat from = whole(rectangle(placement.from));
  cv::Mat to =
      cv::Mat(scaled_.height, scaled_.width, type, scaled_.pixels.data())(rectangle(placement.to));
  const bool shrinks = to.cols <= from.cols && to.rows <= from.rows;
  cv::resize(from, to, to.size(), 0, 0, shrinks ? cv::INTER_AREA : cv::INTER_LINEAR);
}

}  // namespace millrace::io
