// The fuzz targets, by name.
#pragma once

#include <string>
#include <utility>
#include <vector>

#define MILLRACE_TARGETS(each)                                                           \
  each(config) each(csv) each(graph) each(headers) each(http) each(labels) each(profile) \
      each(report) each(safetensors) each(wish)
#define MILLRACE_DECLARE(name) void fuzz_##name(const std::string& text);
MILLRACE_TARGETS(MILLRACE_DECLARE)

namespace millrace::fuzz {

inline std::vector<std::pair<std::string, void (*)(const std::string&)>> targets() {
#define MILLRACE_TARGET(name) {#name, fuzz_##name},
  return {MILLRACE_TARGETS(MILLRACE_TARGET)};
}

}  // namespace millrace::fuzz
