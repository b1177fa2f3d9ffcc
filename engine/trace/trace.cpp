#include "engine/trace/trace.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "engine/schedule/staircase.h"

namespace millrace::engine {
namespace {

/// Bytes of the UTF-8 character that begins at `at`; 0 if none does (RFC 3629: neither overlong
/// forms nor surrogates nor what is beyond U+10FFFF).
std::size_t character_at(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
    return follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
    return follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

/// Nanoseconds as microseconds, to the last digit: a double would lose some after a few days.
std::string microseconds(std::int64_t ns) {
  char digits[32];
  const bool negative = ns < 0;
  const auto size = negative ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  std::snprintf(digits, sizeof digits, "%s%llu.%03u", negative ? "-" : "",
                static_cast<unsigned long long>(size / 1000), unsigned(size % 1000));
  return digits;
}

std::string thread_name(int worker, const std::string& name) {
  return R"({"name":"thread_name","ph":"M","pid":1,"tid":)" + std::to_string(worker) +
         R"(,"args":{"name":)" + json_string(name) + "}},\n" +
         R"({"name":"thread_sort_index","ph":"M","pid":1,"tid":)" + std::to_string(worker) +
         R"(,"args":{"sort_index":)" + std::to_string(worker) + "}}";
}

const char* category(Op op) {
  static const char* const names[] = {"forward",        "recompute",       "backward",
                                      "backward_input", "backward_weight", "update"};
  return names[int(op)];
}

/// Name and category.
std::pair<std::string, const char*> told(const Span& span) {
  if (span.operation) return {span.operation, "operator"};
  if (span.waiting) return {"wait", "waiting"};
  return {std::string(1, op_letter(span.action.op)), category(span.action.op)};
}

std::string complete_event(const Span& span) {
  const Action& a = span.action;
  const std::int64_t version = span.version >= 0 ? span.version : a.version;
  const auto [name, kind] = told(span);
  std::string text =
      R"({"name":)" + json_string(name) + R"(,"cat":")" + kind + R"(","ph":"X","pid":1,"tid":)" +
      std::to_string(span.worker) + R"(,"ts":)" + microseconds(span.start_ns) + R"(,"dur":)" +
      microseconds(std::max<std::int64_t>(0, span.end_ns - span.start_ns)) +
      R"(,"args":{"stage":)" + std::to_string(a.stage) + R"(,"frame":)" + std::to_string(a.sample);
  if (span.operation) return text + "}}";
  if (takes_gradient(a.op) && !span.waiting) text += R"(,"gradient":)" + std::to_string(a.gradient);
  if (version >= 0) text += R"(,"version":)" + std::to_string(version);
  return text + "}}";
}

std::string counter(const char* name, std::int64_t at_ns, const std::string& value) {
  return std::string(R"({"name":")") + name + R"(","ph":"C","pid":1,"ts":)" + microseconds(at_ns) +
         R"(,"args":{"value":)" + value + "}}";
}

std::string counters(const Counts& counts) {
  char latency[32];
  std::snprintf(latency, sizeof latency, "%.3f", counts.latency_ms);
  return counter("frames waiting", counts.at_ns, std::to_string(counts.waiting)) + ",\n" +
         counter("frames dropped", counts.at_ns, std::to_string(counts.dropped)) + ",\n" +
         counter("latency, ms", counts.at_ns, latency);
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
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      quoted += escape;
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
  for (const Counts& moment : counts) text += ",\n" + counters(moment);
  return text + "\n]}\n";
}

std::vector<std::string> worker_names(const Schedule& schedule) {
  const bool staged = int(schedule.workers.size()) < schedule.stages;
  std::vector<std::string> names;
  for (std::size_t worker = 0; worker < schedule.workers.size(); ++worker) {
    if (schedule.replicas.empty()) {
      names.push_back((staged ? "worker " : "stage ") + std::to_string(worker));
    } else {
      const Program& program = schedule.workers[worker];
      names.push_back("stage " + std::to_string(stages_of(program)[0]) + "." +
                      std::to_string(program.replica));
    }
  }
  return names;
}

}  // namespace millrace::engine
