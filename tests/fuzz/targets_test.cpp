// The fuzz targets on their seeds, and on the most expensive inputs: each may take memory of the
// input's size plus 64 MiB, and 2 s of processor time per MiB.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/targets.h"
#include "tests/io/test_folder.h"

namespace millrace::fuzz {
namespace {

TEST(Seeds, AreReplayedAlsoCutShortAndWithAByteChanged) {
  for (const auto& [name, run] : targets()) {
    int seeds = 0;
    for (const auto& entry : std::filesystem::directory_iterator(MILLRACE_SEEDS + ("/" + name))) {
      const std::string seed = io::bytes_of(entry.path().string());
      run(seed);
      const std::size_t step = std::max<std::size_t>(1, seed.size() / 16);
      for (std::size_t at = 0; at < seed.size(); at += step) {
        run(seed.substr(0, at));
        std::string changed = seed;
        changed[at] = char(changed[at] ^ 0x21);
        run(changed);
      }
      ++seeds;
    }
    EXPECT_GT(seeds, 0) << name;
  }
}

constexpr std::size_t kSize = 4 << 20;

/// `text`, then `part` repeated until the text is 4 MiB long, then `end`. In `part` a # stands for
/// 0, 1, ...
std::string many(std::string text, const std::string& part, const char* end = "") {
  for (int n = 0; text.size() < kSize; ++n) {
    for (const char letter : part) {
      if (letter == '#') {
        text += std::to_string(n);
      } else {
        text += letter;
      }
    }
  }
  return text + end;
}

std::vector<std::pair<const char*, std::string>> hostile() {
  const std::string times =
      "forward_compute_time=0.1, backward_compute_time=0.1, activation_size=1.0, "
      "parameter_size=0.0\n";
  const char* const last = R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
  std::vector<std::pair<const char*, std::string>> texts = {
      {"nested lists", many("", "[")},
      {"nested objects", many("", "{\"a\":")},
      {"nested lists of a key", many("a = ", "[")},
      {"nested tables", many("a = ", "{a=")},
      {"a long list", many("[", "0,", "0]")},
      {"many keys", many("{", "\"k#\":0,", "\"\":0}")},
      {"one key again and again", many("{", "\"a\":0,", "\"a\":0}")},
      {"tensors in one place",
       many("{", R"("#":{"dtype":"F32","shape":[16384],"data_offsets":[0,65536]},)", last)},
      {"empty tensors",
       many("{", R"("#":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)", last)},
      {"a long dotted key", many("", "a.", "a = 0")},
      {"many settings", many("", "k# = 0\n")},
      {"many tables", many("", "[t#]\n")},
      {"many tables in a list", many("", "[[model.layer]]\ntype = \"relu\"\n")},
      {"a schedule of many samples", many("", "0F#,0B#,", "0F0")},
      {"overlaps within one another", many("", "(0F0;")},
      {"overlaps beside one another", many("0F0", ",(0F1;0B0)OVERLAP_F_B")},
      {"many nodes", many("", "node# -- Add -- " + times)},
      {"many edges", many("node1 -- Add -- " + times, "\tnode1 -- node1\n")},
      {"many labels of few classes", many("frame,class\n", "#,c\n")},
      {"many classes", many("frame,class\n", "#,c#\n")},
      {"labels as JSON", many("", "{\"frame\": #, \"class\": \"a\"}\n")},
      {"many headers", many("GET / HTTP/1.1\r\n", "a#: b\r\n")},
      {"one letter", many("", "a")},
      {"quotes", many("", "\"")},
      {"zeros", std::string(kSize, '\0')},
  };
  // Each as a weights file, too, which begins with the header's length.
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
      const std::clock_t began = std::clock();  // of this process: others may use the machine
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
