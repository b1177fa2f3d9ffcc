// What hostile input may cost at most: memory of its size plus 64 MiB, and 2 s of processor time a
// MiB.
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <functional>

#include "tests/fuzz/targets.h"

namespace millrace::fuzz {
namespace {

constexpr std::size_t kSize = 4 << 20;

/// `text`, then `part` of 0, 1, ... until that is 4 MiB long, then `end`.
std::string many(std::string text, const std::function<std::string(int)>& part,
                 const char* end = "") {
  for (int n = 0; text.size() < kSize; ++n) text += part(n);
  return text + end;
}
std::string again(const std::string& begin, const std::string& part, const char* end = "") {
  return many(
      begin, [&](int) { return part; }, end);
}

std::vector<std::pair<const char*, std::string>> hostile() {
  const auto number = [](int n) { return std::to_string(n); };
  std::vector<std::pair<const char*, std::string>> texts = {
      {"nested lists", again("", "[")},
      {"nested objects", again("", "{\"a\":")},
      {"nested lists of a key", again("a = ", "[")},
      {"nested tables", again("a = ", "{a=")},
      {"a long list", again("[", "0,", "0]")},
      {"many keys", many(
                        "{", [&](int n) { return "\"k" + number(n) + "\":0,"; }, "\"\":0}")},
      {"one key again and again", again("{", "\"a\":0,", "\"a\":0}")},
      {"tensors in one place",
       many(
           "{",
           [&](int n) {
             return "\"" + number(n) +
                    R"(":{"dtype":"F32","shape":[16384],"data_offsets":[0,65536]},)";
           },
           R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})")},
      {"empty tensors", many(
                            "{",
                            [&](int n) {
                              return "\"" + number(n) +
                                     R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)";
                            },
                            R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})")},
      {"a long dotted key", again("", "a.", "a = 0")},
      {"many settings", many("", [&](int n) { return "k" + number(n) + " = 0\n"; })},
      {"many tables", many("", [&](int n) { return "[t" + number(n) + "]\n"; })},
      {"many tables in a list", again("", "[[model.layer]]\ntype = \"relu\"\n")},
      {"a schedule of many samples",
       many(
           "", [&](int n) { return "0F" + number(n) + ",0B" + number(n) + ","; }, "0F0")},
      {"overlaps within one another", again("", "(0F0;")},
      {"overlaps beside one another", again("0F0", ",(0F1;0B0)OVERLAP_F_B")},
      {"many nodes",
       many("",
            [&](int n) {
              return "node" + number(n) +
                     " -- Add -- forward_compute_time=0.1, backward_compute_time=0.1, "
                     "activation_size=1.0, parameter_size=0.0\n";
            })},
      {"many edges", again("node1 -- Add -- forward_compute_time=0.1, backward_compute_time=0.1, "
                           "activation_size=1.0, parameter_size=0.0\n",
                           "\tnode1 -- node1\n")},
      {"many labels",
       many("frame,class\n", [&](int n) { return number(n) + ",c" + number(n % 900) + "\n"; })},
      {"many classes",
       many("frame,class\n", [&](int n) { return number(n) + ",c" + number(n) + "\n"; })},
      {"labels as JSON",
       many("", [&](int n) { return "{\"frame\": " + number(n) + ", \"class\": \"a\"}\n"; })},
      {"many headers",
       many("GET / HTTP/1.1\r\n", [&](int n) { return "a" + number(n) + ": b\r\n"; })},
      {"one letter", again("", "a")},
      {"quotes", again("", "\"")},
      {"zeros", std::string(kSize, '\0')},
  };
  // The same as a weights file, which begins with the header's length.
  for (std::size_t i = 0, count = texts.size(); i < count; ++i) {
    std::string text = texts[i].second;
    if (text.front() != '{' && text.front() != '[') continue;
    std::string length(8, '\0');
    for (int byte = 0; byte < 8; ++byte) length[byte] = char(text.size() >> 8 * byte);
    texts.emplace_back(texts[i].first, length + text + std::string(1 << 16, '\0'));
  }
  return texts;
}

/// MiB of this process, "VmRSS" or "VmHWM".
double memory(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name)) return std::stod(line.substr(name.size() + 1)) / 1024;
  throw std::runtime_error("no " + name);
}

TEST(Bounds, NoTextTakesMuchMemoryOrTime) {
  const auto texts = hostile();
  for (const auto& [target, run] : targets()) {
    for (const auto& [name, text] : texts) {
      const double mib = double(text.size()) / (1 << 20);
      std::ofstream("/proc/self/clear_refs") << 5;  // the peak counts from here
      const double before = memory("VmRSS");
      const std::clock_t began = std::clock();  // of this process: others may keep the machine busy
      run(text);
      const double took = double(std::clock() - began) / CLOCKS_PER_SEC;
      const double more = memory("VmHWM") - before;
#ifdef __SANITIZE_ADDRESS__  // it takes memory and time itself, and looks for the rest
      (void)took, (void)more;
#else
      EXPECT_LT(took, 2 * mib) << target << ", " << name;
      EXPECT_LT(more, mib + 64) << target << ", " << name;
#endif
    }
  }
}

}  // namespace
}  // namespace millrace::fuzz
