// A page of what bench ingest measured.

#include "engine/format.h"
#include "tools/bench/bench.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMostOverMemcpy = 1.5, kMostOverOpencv = 0.5;
constexpr double kMostOverGstreamer = 1.0 / 20, kMostOverMutex = 1.0 / 10;

std::string figure(const Json& value, const char* format) {
  return engine::format(format, value.get<double>());
}

/// In bold if it is above what it was to be at most.
std::string ratio(const Json& value, double most) {
  const std::string text = figure(value, "%.3f");
  return value.get<double>() > most ? "**" + text + "**" : text;
}

std::string provenance_line(const Json& results) {
  const Json& p = results["provenance"];
  const auto told = [&](const char* key) { return p.value(key, std::string("?")); };
  return told("cpu") + ", " + told("compiler") + ", LibTorch " + told("libtorch") + ", millrace " +
         told("version") + "; medians of " + std::to_string(results["rounds"].get<int>()) +
         " turns of " + figure(results["seconds"], "%g") +
         " s, all ways in turn in one process. Each ratio is the median of its turns'. In bold: "
         "above what was aimed at.\n";
}

std::string sample_rows(const Json& results) {
  std::string rows;
  for (const Json& arm : results["arms"]) {
    if (!arm.contains("ingest_us")) continue;
    rows += "| " + arm["arm"].get<std::string>() + " | " + figure(arm["ingest_us"], "%.0f") +
            " | " + figure(arm["memcpy_us"], "%.0f") + " | " + figure(arm["opencv_us"], "%.0f") +
            " | " + ratio(arm["over_memcpy"], kMostOverMemcpy) + " | " +
            ratio(arm["over_opencv"], kMostOverOpencv) + " |\n";
  }
  return rows;
}

std::string hop_rows(const Json& results) {
  std::string rows;
  for (const Json& arm : results["arms"]) {
    if (!arm.contains("queue_ns")) continue;
    rows += "| " + arm["arm"].get<std::string>() + " | " + figure(arm["queue_ns"], "%.0f") + " | " +
            figure(arm["gstreamer_ns"], "%.0f") + " | " + figure(arm["mutex_ns"], "%.0f") + " | " +
            ratio(arm["over_gstreamer"], kMostOverGstreamer) + " | " +
            ratio(arm["over_mutex"], kMostOverMutex) + " |\n";
  }
  return rows;
}

}  // namespace

std::string ingest_page(const Json& results) {
  return "# From a decoded frame to a sample\n\n"
         "    build/release/millrace bench ingest --json docs/benchmarks/ingest.json --page "
         "docs/benchmarks/ingest.md\n\n" +
         provenance_line(results) +
         "\n## Bytes to floats\n\n"
         "A frame of 8-bit pixels becomes a sample of floats, value / 255, plane by plane, in its "
         "slot, in one thread. `memcpy` copies 2.5 bytes for each of the frame's, so that as much "
         "is read and written (aim: at most 1.5). `OpenCV` is cvtColor (colour alone), convertTo, "
         "and LibTorch's permuted copy into the slot (aim: at most 0.5).\n\n"
         "| frame | here, µs | memcpy, µs | OpenCV, µs | over memcpy | over OpenCV |\n"
         "|---|---|---|---|---|---|\n" +
         sample_rows(results) +
         "\n## From thread to thread\n\n"
         "One frame at a time, from before the sender's call to where the receiver has it in hand, "
         "sender and receiver on cores of their own: the frame queue, GStreamer's `queue` (aim: at "
         "most 0.05) and a deque with mutex and condition variable (aim: at most 0.1). `at once`: "
         "each frame goes when the one before has arrived; the receiver still looks for it, which "
         "is what the frame queue gains by. `every ms`: the receiver has gone to sleep meanwhile, "
         "and any way takes what the kernel takes to wake it. To gain there, too, the receiver "
         "would have to keep its core busy while nothing comes.\n\n"
         "| frames | frame queue, ns | GStreamer, ns | mutex, ns | over GStreamer | over mutex |\n"
         "|---|---|---|---|---|---|\n" +
         hop_rows(results);
}

}  // namespace millrace::bench
