#include "capture/program/cuda/cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>
#include <sstream>

#include "capture/program/cuda/sources.h"  // generated from the kernel sources by CMake

namespace millrace::gpu {
namespace {

namespace fs = std::filesystem;

/// FNV-1a.
std::uint64_t hash(const std::string& text) {
  std::uint64_t made = 14695981039346656037u;
  for (const char c : text) made = (made ^ std::uint8_t(c)) * 1099511628211u;
  return made;
}

/// Empty: none.
fs::path folder() {
  const char* const own = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if ((!own || !*own) && !home) return {};
  return (own && *own ? fs::path(own) : fs::path(home) / ".cache") / "millrace" / "kernels";
}

fs::path file_of(const std::string& key) {
  static const std::uint64_t sources = [] {
    std::string all;
    for (const char* const source : kSources) all += source;
    return hash(all);
  }();
  std::ostringstream name;
  name << std::hex << hash(key + std::to_string(sources));
  return folder() / name.str();
}

std::mutex choosing;
Choices made;

}  // namespace

bool read_cached(const std::string& key, std::string& content) {
  if (folder().empty()) return false;
  std::ifstream file(file_of(key), std::ios::binary);
  std::string named, sum;
  if (!std::getline(file, named) || !std::getline(file, sum) || named != key) return false;
  content.assign(std::istreambuf_iterator<char>(file), {});
  return sum == std::to_string(hash(content));
}

void write_cached(const std::string& key, const std::string& content) {
  static std::atomic<unsigned> count = 0;
  static std::atomic<bool> said = false;
  if (folder().empty()) return;  // neither XDG_CACHE_HOME nor HOME is set
  std::error_code error;
  fs::create_directories(folder(), error);
  const fs::path place = file_of(key);
  const fs::path temporary =
      place.string() + "." + std::to_string(getpid()) + "." + std::to_string(count++);
  std::ofstream file(temporary, std::ios::binary);
  file << key << '\n' << hash(content) << '\n' << content;
  file.close();
  if (file) fs::rename(temporary, place, error);
  if ((!file || error) && !said.exchange(true))
    std::fprintf(stderr, "millrace: warning: kernels for the GPU can't be kept in %s\n",
                 folder().string().c_str());
  fs::remove(temporary, error);
}

Choices choices() {
  const std::lock_guard lock(choosing);
  return made;
}

void take_choices(const Choices& from) {
  const std::lock_guard lock(choosing);
  for (const auto& [task, name] : from) made[task] = name;
}

std::size_t choose(const std::string& task, const std::vector<std::string>& names,
                   const std::function<double(std::size_t)>& time) {
  const std::lock_guard lock(choosing);
  const auto place_of = [&](const std::string& name) {
    return std::size_t(std::find(names.begin(), names.end(), name) - names.begin());
  };
  const auto known = made.find(task);
  if (known != made.end() && place_of(known->second) < names.size()) return place_of(known->second);
  std::string cached;
  std::size_t best = read_cached(task, cached) ? place_of(cached) : names.size();
  if (best == names.size()) {
    best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < names.size(); ++i) {
      const double took = time(i);
      if (took < least) best = i, least = took;
    }
    if (std::isfinite(least)) write_cached(task, names[best]);
  }
  made[task] = names[best];
  return best;
}

}  // namespace millrace::gpu
