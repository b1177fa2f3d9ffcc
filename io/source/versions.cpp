#include <gst/gst.h>
#include <opencv2/core/utility.hpp>

#include "io/source/versions.h"

namespace millrace::io {

std::string gstreamer_version() {
  guint major = 0, minor = 0, micro = 0, nano = 0;
  gst_version(&major, &minor, &micro, &nano);  // needs no gst_init
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(micro);
}

std::string opencv_version() {
  return cv::getVersionString();
}

}  // namespace millrace::io
