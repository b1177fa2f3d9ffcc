#include "engine/trace/trace.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/format.h"

namespace millrace::engine {
namespace {

/// Exact: as a double, a time would lose nanoseconds after 104 days.
std::string microseconds(std::int64_t ns) {
  return format("%s%lld.%03d", ns < 0 ? "-" : "", std::abs(static_cast<long long>(ns / 1000)),
                int(std::abs(ns % 1000)));
}

/// Quoted. Bytes that are not UTF-8 become U+FFFD.
std::string json_string(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string thread_name(int worker, const std::string& name) {
  return format(
      R"({"name":"thread_name","ph":"M","pid":1,"tid":%d,"args":{"name":%s}},)"
      "\n"
      R"({"name":"thread_sort_index","ph":"M","pid":1,"tid":%d,"args":{"sort_index":%d}})",
      worker, json_string(name).c_str(), worker, worker);
}

std::string complete_event(const Span& span) {
  const Action& a = span.action;
  const std::int64_t version = span.version >= 0 ? span.version : a.version;
  std::string name(1, op_letter(a.op));
  const char* category = op_name(a.op);
  if (span.waiting) name = "wait", category = "waiting";
  if (span.operation) name = span.operation, category = "operator";
  std::string text = format(
      R"({"name":%s,"cat":"%s","ph":"X","pid":1,"tid":%d,"ts":%s,"dur":%s,"args":{"stage":%d,"frame":%lld)",
      json_string(name).c_str(), category, span.worker, microseconds(span.start_ns).c_str(),
      microseconds(std::max<std::int64_t>(0, span.end_ns - span.start_ns)).c_str(), a.stage,
      static_cast<long long>(a.sample));
  if (!span.operation) {
    if (takes_gradient(a.op) && !span.waiting)
      text += R"(,"gradient":)" + std::to_string(a.gradient);
    if (version >= 0) text += R"(,"version":)" + std::to_string(version);
  }
  return text + "}}";
}

std::string counters(const Counts& counts) {
  const std::pair<const char*, std::string> values[] = {
      {"frames waiting", std::to_string(counts.waiting)},
      {"frames dropped", std::to_string(counts.dropped)},
      {"latency, ms", format("%.3f", counts.latency_ms)}};
  std::string text;
  for (const auto& [name, value] : values)
    text += format(
        ",\n"
        R"({"name":"%s","ph":"C","pid":1,"ts":%s,"args":{"value":%s}})",
        name, microseconds(counts.at_ns).c_str(), value.c_str());
  return text;
}

}  // namespace

std::string trace_json(const std::string& name, const std::vector<std::string>& workers,
                       const std::vector<Span>& spans, const std::vector<Counts>& counts) {
  int last = int(workers.size()) - 1;
  for (const Span& span : spans) last = std::max(last, span.worker);
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  text += R"({"name":"process_name","ph":"M","pid":1,"args":{"name":)" + json_string(name) + "}}";
  for (int worker = 0; worker <= last; ++worker) {
    const bool named = worker < int(workers.size());
    text +=
        ",\n" + thread_name(worker, named ? workers[worker] : "worker " + std::to_string(worker));
  }
  for (const Span& span : spans) text += ",\n" + complete_event(span);
  for (const Counts& moment : counts) text += counters(moment);
  return text + "\n]}\n";
}

}  // namespace millrace::engine
