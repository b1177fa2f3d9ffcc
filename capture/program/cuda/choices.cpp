#include "capture/program/cuda/choices.h"

#include <algorithm>
#include <mutex>

#include "capture/program/cuda/cache.h"

namespace millrace::gpu {
namespace {

std::mutex mutex;
Choices made;

}  // namespace

Choices choices() {
  const std::lock_guard lock(mutex);
  return made;
}

void take_choices(const Choices& from) {
  const std::lock_guard lock(mutex);
  for (const auto& [task, name] : from) made[task] = name;
}

std::size_t choose(const std::string& task, const std::vector<std::string>& names,
                   const std::function<double(std::size_t)>& time) {
  const std::lock_guard lock(mutex);
  const auto place_of = [&](const std::string& name) {
    return std::size_t(std::find(names.begin(), names.end(), name) - names.begin());
  };
  const auto known = made.find(task);
  if (known != made.end() && place_of(known->second) < names.size()) return place_of(known->second);
  std::string cached;
  std::size_t best = read_cached(task, cached) ? place_of(cached) : names.size();
  if (best == names.size()) {
    best = 0;
    double least = names.size() > 1 ? time(0) : 0;
    for (std::size_t i = 1; i < names.size(); ++i) {
      const double took = time(i);
      if (took < least) best = i, least = took;
    }
    write_cached(task, names[best]);
  }
  made[task] = names[best];
  return best;
}

}  // namespace millrace::gpu
