// The GPU benchmark's page says what the results say, and which aims were missed.
#include "tools/bench/gpu/gpu_page.h"

#include <gtest/gtest.h>

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

/// Results as a GPU might have given them: some aims met, some missed, one arm failed.
Json made_up() {
  return Json::parse(R"({
    "provenance": {"version": "9.9", "compiler": "GNU 12", "libtorch": "2.11.0", "cuda": "13.0",
                   "cpu": "some CPU", "gpu": "some GPU", "threads": 1},
    "turns": 5, "network_turns": 3, "seconds": 0.5,
    "stages": [{"arm": "graph against eager", "network": "basic", "size": 128, "stages": 2,
                "graph_fps": 2000.0, "eager_fps": 400.0, "ratio": 5.0}],
    "relaunch": [{"network": "basic", "size": 128, "stages": 1, "engine_ms": 0.515,
                  "replay_ms": 0.5, "bare_ms": 0.515, "bare_ratio": 1.0, "ratio": 1.03}],
    "independent": [{"network": "basic", "size": 128, "stages": 4, "engine_fps": 940.0,
                     "bare_fps": 1000.0, "ratio": 0.94}],
    "processor_time": [{"network": "basic", "size": 128, "stages": 1, "engine_us": 11.9,
                        "bare_us": 10.0, "ratio": 1.19}],
    "latency": [{"network": "basic", "size": 128, "stages": 1, "engine_ms": 0.3, "bare_ms": 0.2,
                 "step_ms": 0.29, "tail": 1.25, "ratio": 1.5},
                {"network": "basic", "size": 128, "stages": 4, "engine_ms": 0.21, "bare_ms": 0.2,
                 "step_ms": 0.29, "tail": 1.0, "ratio": 1.05}],
    "networks": [{"network": "kernel", "size": 1024, "stages": 4, "error": "out of memory"}]
  })");
}

void expect_line(const std::string& page, const std::string& line) {
  EXPECT_NE(page.find("\n" + line + "\n"), std::string::npos) << line << "\nis not in\n" << page;
}

TEST(GpuPage, HasARowForEachEntryAndMissedAimsInBold) {
  const std::string page = gpu_page(made_up());
  expect_line(page, "| basic | 128 | 2 | 2000.0 | 400.0 | 5.00 |");
  expect_line(page, "| basic | 128 | 0.5150 | 0.5000 | **1.030** | 0.5150 | 1.000 |");
  expect_line(page, "| basic | 128 | 4 | 940.0 | 1000.0 | **0.940** |");
  expect_line(page, "| basic | 128 | 11.90 | 10.00 | 1.190 |");
  expect_line(page, "| basic | 128 | 1 | 0.3000 | 0.2000 | **1.500** | **1.25** | 0.2900 |");
  expect_line(page, "| basic | 128 | 4 | 0.2100 | 0.2000 | 1.050 | 1.00 | 0.2900 |");
}

TEST(GpuPage, ShowsAnErrorWhereFiguresWouldStand) {
  expect_line(gpu_page(made_up()), "| kernel | 1024 |  |  |  | 4 |  |  | out of memory |");
}

TEST(GpuPage, SaysWhereItWasMeasuredAndWhatWasNot) {
  const std::string page = gpu_page(made_up());
  for (const char* text : {"some GPU, some CPU, GNU 12, LibTorch 2.11.0, CUDA 13.0, millrace 9.9",
                           "5 turns (networks: 3) of 0.5 s", "Not at hand, so not measured"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
}

TEST(GpuPage, OfResultsThatStopHalfWay) {
  Json results = made_up();
  results.erase("latency");
  results.erase("networks");
  const std::string page = gpu_page(results);
  EXPECT_NE(page.find("**1.030**"), std::string::npos);
  EXPECT_NE(page.find("\nNot measured.\n"), std::string::npos);
}

}  // namespace
}  // namespace millrace::bench
