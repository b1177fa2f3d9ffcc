#pragma once

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "engine/pipeline/pipeline.h"

namespace millrace::engine {

/// Every third action begins up to half a millisecond late.
inline PipelineOptions random_sleeps(const std::atomic<std::int64_t>* train_every = nullptr) {
  PipelineOptions options{.train_every = train_every};
  options.before_action = [](int worker, const Action&) {
    thread_local std::mt19937 random{std::uint32_t(worker)};
    if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  };
  return options;
}

}  // namespace millrace::engine
