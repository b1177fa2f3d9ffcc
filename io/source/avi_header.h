// What an AVI file's header says of a file that has lost its end.
#pragma once

#include <string>  // path

namespace millrace::io {

/// Seconds that a truncated AVI file was meant to last; 0 if it is no AVI file or not cut off.
/// (GStreamer counts what is there, so it takes such a file for a shorter whole one.)
double cut_avi_duration(const std::string& path);

}  // namespace millrace::io
