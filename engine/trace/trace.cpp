#include "engine/trace/trace.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "engine/format.h"

namespace millrace::engine {
namespace {

/// Bytes of the UTF-8 character that begins at `at`; 0 if none does (RFC 3629: no overlong forms,
/// no surrogates, nothing beyond U+10FFFF).
std::size_t character_at(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (length == 0 || first > 0xf4) return 0;
  const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

/// Nanoseconds as microseconds, exactly: a double would lose digits after a few days.
std::string microseconds(std::int64_t ns) {
  return format("%s%lld.%03d", ns < 0 ? "-" : "", std::abs(static_cast<long long>(ns / 1000)),
                int(std::abs(ns % 1000)));
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

std::string json_string(const std::string& text) {
  std::string quoted = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_at(text, at);
    const auto c = static_cast<unsigned char>(text[at]);
    if (length == 0) {
      quoted += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      quoted += {'\\', text[at]};
    } else if (c < 0x20) {
      quoted += format("\\u%04x", c);
    } else {
      quoted.append(text, at, length);
    }
    at += std::max<std::size_t>(1, length);
  }
  return quoted + "\"";
}

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
