// The benchmark of a machine with GPUs and little else: `gpu_bench [RESULTS.json [PAGE.md]]`.
// Stands alone, so that it builds where neither the program's libraries nor its sources' are.
#include <exception>  // what went wrong
#include <iostream>   // page, progress

#include "capture/devices.h"
#include "io/files/whole_file.h"
#include "tools/bench/gpu/gpu_arms.h"
#include "tools/bench/gpu/gpu_page.h"

namespace {

using namespace millrace;
using Json = nlohmann::ordered_json;

int measure(const std::string& results_file, const std::string& page_file) {
  bench::GpuBench how;
  how.progress = [](const std::string& arm) { std::cerr << arm << "\n"; };
  // After each arm: what was measured stays if a later one takes the process with it.
  how.keep = [&](const Json& results) {
    if (!results_file.empty()) io::write_whole(results_file, results.dump(2) + "\n");
    if (!page_file.empty()) io::write_whole(page_file, bench::gpu_page(results));
  };
  std::cout << bench::gpu_page(bench::gpu_results(how));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (capture::cuda_devices() == 0) {
    std::cout << "no CUDA device here: nothing was measured\n";
    return 0;
  }
  try {
    return measure(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::cerr << "millrace: error: " << error.what() << "\n";
    return 1;
  }
}
