// What this build reads video with.
#pragma once

#include <string>

namespace millrace::io {

std::string gstreamer_version();  ///< "1.22.0", or "" in a build without it
std::string opencv_version();     ///< "4.6.0", or "" in a build without it

}  // namespace millrace::io
