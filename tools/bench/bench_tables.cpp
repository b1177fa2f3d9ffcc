// `millrace bench tables`: what others have published, and what plan and simulate make of the same
// networks and machines. Measures nothing: the same everywhere.
#include <cstdio>  // table

#include "engine/plan/known_networks.h"
#include "engine/plan/profile_json.h"
#include "engine/plan/published.h"
#include "tools/bench/bench.h"
#include "tools/config/profile_read.h"
#include "tools/run/provenance.h"

namespace millrace::tools {
namespace {

namespace plan = engine::plan;

/// All tables; with `folder` ("profiler" of PipeDream's repository) also from what its authors
/// measured, whose minibatches are of 128.
std::vector<plan::Comparison> tables(const std::string& folder) {
  const plan::Networks worked_out = plan::worked_out_networks();
  if (folder.empty()) return plan::published_tables(worked_out);
  const auto read = [&](const std::string& network, int frames) {
    constexpr int kTheirs = 128;
    const plan::Profile profile = read_profile(folder + "/" + network + "/graph.txt", kTheirs);
    return plan::with_frames(profile, double(frames) / kTheirs);
  };
  const plan::Networks measured = {read("image_classification/profiles/vgg16", 64),
                                   read("image_classification/profiles/resnet50", 128),
                                   read("translation/profiles/gnmt_large", 64)};
  return plan::published_tables(worked_out, &measured);
}

}  // namespace

nlohmann::ordered_json bench_tables(const BenchArguments& arguments) {
  using Json = nlohmann::ordered_json;
  Json results = {{"suite", "tables"}, {"profiles", arguments.profiles}, {"arms", Json::array()}};
  for (const Json& row : Json::parse(plan::comparisons_to_json(tables(arguments.profiles)))) {
    const auto word = [&](const char* name) { return row[name].get<std::string>(); };
    Json arm = {{"arm", word("source") + ": " + word("what")}};
    arm.update(row);
    results["arms"].push_back(std::move(arm));
    std::printf("%s\n  published  %s\n  ours       %s\n  %s\n", word("what").c_str(),
                word("published").c_str(), word("ours").c_str(), word("explanation").c_str());
  }
  results["provenance"] = provenance(1);
  return results;
}

std::string tables_page(const nlohmann::ordered_json& results) {
  return plan::comparisons_markdown(tables(results.value("profiles", "")));
}

}  // namespace millrace::tools
