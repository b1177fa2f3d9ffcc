#include "tools/bench/published.h"

#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>

#include "engine/plan_files/profile_json.h"
#include "tools/bench/known_networks.h"

namespace millrace::bench {
namespace {

using namespace engine::plan;

const Comparison& row_of(const std::vector<Comparison>& rows, const std::string& what) {
  for (const Comparison& row : rows) {
    if (row.what == what) return row;
  }
  throw std::out_of_range(what);
}

/// "15-1" of "15-1, 4.69x; straight ...".
std::string configuration(const std::string& text) {
  return text.substr(0, text.find(','));
}

TEST(Published, NetworksAreTheirArchitectures) {
  const auto weights = [](const Profile& profile) {
    double bytes = 0;
    for (const ModuleProfile& module : profile.modules) bytes += module.bytes.weight;
    return bytes / 4e6;  // millions
  };
  const Networks networks = worked_out_networks();
  EXPECT_NEAR(weights(networks.vgg16), 138.36, 0.01);      // as torchvision counts them
  EXPECT_NEAR(weights(networks.resnet50), 25.557, 0.001);  // likewise
  for (const Profile& profile : {networks.vgg16, networks.resnet50, networks.gnmt8}) {
    EXPECT_NO_THROW(check_profile(profile));
  }
}

TEST(Published, PipeDreamsConfigurationsComeOut) {
  const std::vector<Comparison> rows = pipedream_table(worked_out_networks());
  for (const char* what : {"VGG-16, 4x4 V100, Cluster-A", "VGG-16, 2x8 V100, Cluster-B",
                           "ResNet-50, 4x4 V100, Cluster-A", "ResNet-50, 2x8 V100, Cluster-B"}) {
    const Comparison& row = row_of(rows, what);
    EXPECT_EQ(configuration(row.ours), configuration(row.published)) << what;
  }
}

TEST(Published, PipeDreamsSpeedUpsAreWhatTheyWere) {
  const std::vector<Comparison> rows = pipedream_table(worked_out_networks());
  const auto ours = [&](const char* what) { return row_of(rows, what).our_figure.value(); };
  EXPECT_NEAR(ours("VGG-16, 4x4 V100, Cluster-A"), 4.69, 0.01);
  EXPECT_NEAR(ours("VGG-16, 2x8 V100, Cluster-B"), 1.88, 0.01);
  EXPECT_DOUBLE_EQ(ours("ResNet-50, 4x4 V100, Cluster-A"), 1.0);
  EXPECT_DOUBLE_EQ(ours("ResNet-50, 2x8 V100, Cluster-B"), 1.0);
  EXPECT_NEAR(ours("GNMT-8, 3x4 V100, Cluster-A"), 9.51, 0.01);
}

TEST(Published, BubblesAndTwoBufferedWeightsAreTheFormulas) {
  for (const Comparison& row : schedule_table()) {
    EXPECT_NEAR(row.our_figure.value(), row.published_figure.value(), 1e-12) << row.what;
  }
}

TEST(Published, PartimesSpeedUpGrowsWithDepthAndResolution) {
  for (int stages = 3; stages <= 8; ++stages) {
    // Depth: at every size, recorded or not.
    for (const int side : {64, 256, 512}) {
      for (const bool costs : {false, true}) {
        EXPECT_GE(partime_speedup(30, side, stages, costs),
                  partime_speedup(10, side, stages, costs) - 1e-9);
      }
    }
    // Resolution: where kernels are started one by one.
    EXPECT_GE(partime_speedup(30, 256, stages, true), partime_speedup(30, 64, stages, true));
    EXPECT_GE(partime_speedup(30, 512, stages, true) + 0.02,
              partime_speedup(30, 256, stages, true));
  }
  // Shallow networks level off: ten layers do not gain from eight GPUs what six do not give.
  EXPECT_NEAR(partime_speedup(10, 512, 8, false), partime_speedup(10, 512, 6, false), 1e-9);
  EXPECT_GT(partime_speedup(30, 512, 8, false), 1.2 * partime_speedup(30, 512, 6, false));
  // Small frames wait for the host, and no longer once recorded.
  EXPECT_DOUBLE_EQ(partime_speedup(30, 64, 8, true), 1.0);
  EXPECT_GT(partime_speedup(30, 64, 8, false), 7.0);
}

TEST(Published, EveryRowExplainsItself) {
  std::vector<Comparison> rows = published_tables(worked_out_networks());
  EXPECT_EQ(rows.size(), 5u + 12);
  for (Comparison& row : schedule_table()) rows.push_back(std::move(row));
  for (const Comparison& row : rows) {
    EXPECT_FALSE(row.explanation.empty()) << row.what;
    EXPECT_FALSE(row.published.empty()) << row.what;
    EXPECT_FALSE(row.ours.empty()) << row.what;
  }
  const std::string page = comparisons_markdown(rows);
  EXPECT_NE(page.find("## GPipe, arXiv 1811.06965: (p-1)/m\n\n| what |"), std::string::npos);
}

TEST(ProfileJson, FilesOfKnownNetworksAreUpToDate) {
  const auto read = [](const std::string& name) {
    const std::string path = std::string(MILLRACE_SOURCE) + "/docs/benchmarks/profiles/" + name;
    std::ifstream file(path);
    return profile_from_json({std::istreambuf_iterator<char>(file), {}}, path);
  };
  const auto same = [&](const std::string& name, const Profile& profile) {
    const Profile file = read(name);
    ASSERT_EQ(file.modules.size(), profile.modules.size());
    for (std::size_t i = 0; i < file.modules.size(); ++i) {
      const ModuleProfile &ours = file.modules[i], &theirs = profile.modules[i];
      EXPECT_EQ(ours.name, theirs.name);
      EXPECT_NEAR(ours.ms().total(), theirs.ms().total(), 1e-9 * theirs.ms().total());
      EXPECT_EQ(ours.bytes, theirs.bytes);
    }
  };
  const Networks networks = worked_out_networks();
  same("vgg16.json", networks.vgg16);
  same("resnet50.json", networks.resnet50);
  same("gnmt8.json", networks.gnmt8);
}

}  // namespace
}  // namespace millrace::bench
