// Without OpenCV and GStreamer there is nothing to compare ingest with.
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tools/bench/measure.h"

namespace millrace::bench {

Json ingest(const Json&) {
  throw std::runtime_error("bench ingest: this build has no OpenCV and GStreamer to compare with");
}

Json hop(const Json& question) {
  return ingest(question);
}

}  // namespace millrace::bench
