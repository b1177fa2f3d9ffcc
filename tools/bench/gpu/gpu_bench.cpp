// The benchmark for bare GPU machines: answers each question of bench.py on standard input, one
// line of JSON, with another. Self-contained, so that it builds without the libraries of the
// program and its sources.
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
    std::cout << bench::answer(nlohmann::ordered_json::parse(line)).dump() << std::endl;
  return 0;
}
