#include "io/source/versions.h"

namespace millrace::io {

std::string gstreamer_version() {
  return "";
}
std::string opencv_version() {
  return "";
}

}  // namespace millrace::io
