// The benchmark of a machine with GPUs and little else: answers each question on standard input, a
// line of JSON, with another. bench.py asks.
// Stands alone, so that it builds where neither the program's libraries nor its sources' are.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "capture/devices.h"
#include "tools/bench/gpu/arms.h"

int main() {
  using namespace millrace;
  if (capture::cuda_devices() == 0) {
    std::cerr << "no CUDA device here: nothing was measured\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);)
    std::cout << bench::answer({}, nlohmann::ordered_json::parse(line)).dump() << std::endl;
  return 0;
}
