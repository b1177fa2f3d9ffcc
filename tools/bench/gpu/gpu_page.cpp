#include "tools/bench/gpu/gpu_page.h"

#include <algorithm>  // any_of
#include <limits>     // no limit
#include <vector>     // columns

#include "engine/format.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::format;

/// A figure's column. A value outside [least, most] is in bold.
struct Column {
  const char* title;
  const char* key;
  const char* pattern;
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

std::string figure(const Json& value, const Column& column) {
  if (!value.is_number()) return value.is_string() ? value.get<std::string>() : "?";
  const std::string text = engine::format(column.pattern, value.get<double>());
  const double number = value.get<double>();
  return number < column.least || number > column.most ? "**" + std::string(text) + "**" : text;
}

/// A line of `entry`, whose arm may have failed before it had all figures.
std::string row(const Json& entry, const std::vector<Column>& columns) {
  std::string line;
  for (const Column& column : columns) {
    const bool missing = entry.contains("error") && !entry.contains(column.key);
    line += "| " + (missing ? "" : figure(entry.value(column.key, Json()), column)) + " ";
  }
  return line;
}

/// All entries of a list, with a column for errors where there are any.
std::string table(const Json& results, const char* list, const std::vector<Column>& columns) {
  if (!results.contains(list)) return "Not measured.\n";
  const Json& entries = results[list];
  const bool failed = std::any_of(entries.begin(), entries.end(),
                                  [](const Json& entry) { return entry.contains("error"); });
  std::string heads, rule, rows;
  for (const Column& column : columns) {
    heads += "| " + std::string(column.title) + " ";
    rule += "|---";
  }
  for (const Json& entry : entries)
    rows += row(entry, columns) + (failed ? "| " + entry.value("error", "") + " |\n" : "|\n");
  return heads + (failed ? "| failed with |\n" : "|\n") + rule + (failed ? "|---|\n" : "|\n") +
         rows;
}

std::string provenance_line(const Json& results) {
  const Json& p = results["provenance"];
  const auto told = [&](const char* key) { return p.value(key, std::string("?")); };
  return told("gpu") + ", " + told("cpu") + ", " + told("compiler") + ", LibTorch " +
         told("libtorch") + ", CUDA " + told("cuda") + ", millrace " + told("version") +
         format(
             "; medians of %d turns (networks: %d) of %g s, the ways of an arm in turn in one "
             "process. Each ratio is the median of its turns'. In bold: missed what was aimed "
             "at.\n",
             results["turns"].get<int>(), results["network_turns"].get<int>(),
             results["seconds"].get<double>());
}

const Column kNetwork{"network", "network", ""}, kSize{"pixels", "size", "%.0f"},
    kStages{"stages", "stages", "%.0f"};

std::string device_sections(const Json& results) {
  return "\n## Frames as they are\n\n"
         "Samples copied to the GPU as floats, and as bytes of which it makes floats.\n\n" +
         table(results, "bytes",
               {kNetwork,
                kSize,
                {"as floats, frames/s", "floats_fps", "%.1f"},
                {"as bytes, frames/s", "bytes_fps", "%.1f"},
                {"bytes over floats", "ratio", "%.3f"}});
}

std::string engine_sections(const Json& results) {
  return "\n## What the engine adds\n\n"
         "A step of the engine at one stage, and the same step captured whole and replayed back to "
         "back by PyTorch's `CUDAGraph::replay()` (aim: at most 1.02) and by our own launch; all "
         "copy the sample in and the prediction out.\n\n" +
         table(results, "relaunch",
               {kNetwork,
                kSize,
                {"engine, ms", "engine_ms", "%.4f"},
                {"PyTorch's replay, ms", "replay_ms", "%.4f"},
                {.title = "engine over replay", .key = "ratio", .pattern = "%.3f", .most = 1.02},
                {"our launch, ms", "bare_ms", "%.4f"},
                {"engine over ours", "bare_ratio", "%.3f"}}) +
         "\nStages that share the GPU, and as many bare graphs on streams of their own that wait "
         "for nobody and hand nothing over (aim: at least 0.95).\n\n" +
         table(results, "independent",
               {kNetwork,
                kSize,
                kStages,
                {"engine, frames/s", "engine_fps", "%.1f"},
                {"bare graphs, frames/s", "bare_fps", "%.1f"},
                {.title = "engine over bare", .key = "ratio", .pattern = "%.3f", .least = 0.95}}) +
         "\nProcessor time of a worker's calls on its stage's step, and of a bare graph's launch "
         "(aim: at most 1.2).\n\n" +
         table(results, "processor_time",
               {kNetwork,
                kSize,
                {"step, µs", "engine_us", "%.2f"},
                {"bare launch, µs", "bare_us", "%.2f"},
                {.title = "step over launch", .key = "ratio", .pattern = "%.3f", .most = 1.2}}) +
         "\nFrom frame in to prediction out, with a pipeline that is empty when the frame comes, "
         "and one bare graph of copy, all forwards and copy, from launch to end (aim: at most "
         "1.05). `1 in 1000`: what one frame in a thousand takes over the median (aim: at most "
         "1.1). "
         "`whole step`: that graph with backward and update.\n\n" +
         table(results, "latency",
               {kNetwork,
                kSize,
                kStages,
                {"engine, ms", "engine_ms", "%.4f"},
                {"copies and forwards, ms", "bare_ms", "%.4f"},
                {.title = "engine over these", .key = "ratio", .pattern = "%.3f", .most = 1.05},
                {.title = "1 in 1000", .key = "tail", .pattern = "%.2f", .most = 1.1},
                {"whole step, ms", "step_ms", "%.4f"}});
}

}  // namespace

std::string gpu_page(const Json& results) {
  return "# On a GPU\n\n"
         "    tools/gpu-check\n\n" +
         provenance_line(results) +
         "\n## Recorded against eager\n\n"
         "`partime` with all stages on one GPU; eager: PyTorch's training of the whole network, "
         "one "
         "stream, each operator launched anew, no waits between them.\n\n" +
         table(results, "stages",
               {kNetwork,
                kSize,
                kStages,
                {"recorded, frames/s", "graph_fps", "%.1f"},
                {"eager, frames/s", "eager_fps", "%.1f"},
                {"recorded over eager", "ratio", "%.2f"}}) +
         device_sections(results) + engine_sections(results) +
         "\n## Frames learned a second\n\n"
         "Basic: 10 layers, 16 features, kernel 5; layers, features and kernel times three. One "
         "stage, and several that share the GPU.\n\n" +
         table(results, "networks",
               {kNetwork,
                kSize,
                {"eager, frames/s", "eager_fps", "%.1f"},
                {"recorded, frames/s", "graph_fps", "%.1f"},
                {"recorded over eager", "ratio", "%.2f"},
                kStages,
                {"in stages, frames/s", "staged_fps", "%.1f"},
                {"stages over one", "staged_ratio", "%.2f"}}) +
         "\n## The authors' library\n\n"
         "Not at hand, so not measured (aim: at least 1.5 times as fast as it at one stage, twice "
         "at four).\n";
}

}  // namespace millrace::bench
