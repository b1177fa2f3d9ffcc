// Without OpenCV and GStreamer there is nothing to hold ingest against.
#include <stdexcept>  // the refusal

#include "tools/bench/bench.h"

namespace millrace::bench {

nlohmann::ordered_json bench_ingest(const BenchArguments&) {
  throw std::runtime_error("bench ingest: this build has no OpenCV and GStreamer to compare with");
}

}  // namespace millrace::bench
