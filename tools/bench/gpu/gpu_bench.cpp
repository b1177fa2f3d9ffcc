// The benchmark of a machine with GPUs and little else: `gpu_bench RESULTS.json`.
// Stands alone, so that it builds where neither the program's libraries nor its sources' are.
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>

#include "capture/devices.h"
#include "io/files/whole_file.h"
#include "tools/bench/gpu/gpu_arm.h"

namespace {

using namespace millrace;
using Json = nlohmann::ordered_json;

void measure(const std::string& file) {
  bench::GpuBench how;
  how.progress = [](const std::string& arm) { std::cerr << arm << "\n"; };
  // After each arm: what was measured stays if a later one takes the process with it.
  how.keep = [&](const Json& results) { io::write_whole(file, results.dump(2) + "\n"); };
  bench::gpu_results(how);
}

}  // namespace

int main(int argc, char** argv) {
  if (capture::cuda_devices() == 0) {
    std::cout << "no CUDA device here: nothing was measured\n";
    return 0;
  }
  try {
    measure(argc > 1 ? argv[1] : "gpu.json");
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "millrace: error: " << error.what() << "\n";
    return 1;
  }
}
