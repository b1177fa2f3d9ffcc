#include "tools/app/thread_limit.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace millrace::app {
namespace {

/// The reader, the pipeline's, the writers of checkpoints, log and trace; workers and helpers;
/// GStreamer's elements.
int threads_needed(const Config& config) {
  constexpr int kOwn = 4, kDecoder = 8, kEncoder = 6;
  const std::vector<int>& threads = config.pipeline.threads;
  const int workers =
      std::max(config.pipeline.stages, std::accumulate(threads.begin(), threads.end(), 0));
  const std::string& uri = config.source.uri;
  const bool decodes = !uri.starts_with("synth:") && !uri.starts_with("images:");
  return kOwn + workers + (decodes ? kDecoder : 0) + (config.output.video.empty() ? 0 : kEncoder);
}

}  // namespace

void require_threads(const Config& config) {
  const int needed = threads_needed(config);
  std::vector<std::thread> all;
  std::string refused;
  {
    std::mutex gate;
    std::unique_lock shut(gate);
    try {
      while (int(all.size()) < needed) all.emplace_back([&] { const std::lock_guard wait(gate); });
    } catch (const std::system_error& error) {
      refused = error.code().message();
    }
    shut.unlock();
    for (std::thread& one : all) one.join();
  }
  if (refused.empty()) return;
  throw std::runtime_error("threads: this run needs about " + std::to_string(needed) +
                           ", and the system starts " + std::to_string(all.size()) + " (" +
                           refused +
                           "): raise its limit on processes (pids.max, ulimit -u) or memory");
}

}  // namespace millrace::app
