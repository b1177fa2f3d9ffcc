// What tests of a GPU's kernels share.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "capture/program/cuda/compiler.h"

namespace millrace::program {

inline const c10::Device kGpu(at::kCUDA, 0);

inline bool is_long() {
  return std::getenv("MILLRACE_LONG") != nullptr;
}

/// How far apart, by norm, of what is wanted, or of `least` if that is more.
inline double error(const at::Tensor& got, const at::Tensor& wanted, double least = 0) {
  const at::Tensor difference = got.cpu().to(at::kDouble) - wanted;
  return difference.norm().item<double>() / (std::max(wanted.norm().item<double>(), least) + 1e-30);
}

/// Compiles kernels, each for a generation that LibTorch's wheel knows from sm_80 on, or in a long
/// run for all of them; no GPU is needed.
inline void expect_no_spills(const std::vector<std::string>& names) {
  const std::vector<int> generations = {90, 80, 86, 87, 89, 100, 120};
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < names.size();) {
      for (std::size_t g = 0; g < generations.size(); ++g) {
        if (!is_long() && g != i % generations.size()) continue;
        const gpu::Compiled made = gpu::compile(names[i], generations[g], true);
        EXPECT_FALSE(std::regex_search(made.log, std::regex("[1-9][0-9]* bytes spill")))
            << names[i] << " for sm_" << generations[g] << ": " << made.log;
      }
    }
  };
  std::thread other(work);
  work();
  other.join();
}

}  // namespace millrace::program
