// `millrace bench tables`: what others have published, and what plan and simulate make of the same
// networks and machines. Measures nothing: the same everywhere.
#include <cstdio>  // table

#include "tools/bench/bench.h"
#include "tools/bench/published.h"
#include "tools/app/config/profile_read.h"
#include "tools/app/provenance.h"

namespace millrace::bench {
namespace {

namespace plan = engine::plan;

/// All tables; with `folder` ("profiler" of PipeDream's repository) also from what its authors
/// measured, whose minibatches are of 128.
std::vector<Comparison> tables(const std::string& folder) {
  const Networks worked_out = worked_out_networks();
  if (folder.empty()) return published_tables(worked_out);
  const auto read = [&](const std::string& network, int frames) {
    constexpr int kTheirs = 128;
    const plan::Profile profile = app::read_profile(folder + "/" + network + "/graph.txt", kTheirs);
    return with_frames(profile, double(frames) / kTheirs);
  };
  const Networks measured = {read("image_classification/profiles/vgg16", 64),
                             read("image_classification/profiles/resnet50", 128),
                             read("translation/profiles/gnmt_large", 64)};
  return published_tables(worked_out, &measured);
}

}  // namespace

nlohmann::ordered_json bench_tables(const BenchArguments& arguments) {
  using Json = nlohmann::ordered_json;
  Json results = {{"suite", "tables"}, {"profiles", arguments.profiles}, {"arms", Json::array()}};
  const auto figure = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  for (const Comparison& row : tables(arguments.profiles)) {
    results["arms"].push_back({{"arm", row.source + ": " + row.what},
                               {"source", row.source},
                               {"what", row.what},
                               {"published", row.published},
                               {"ours", row.ours},
                               {"published_figure", figure(row.published_figure)},
                               {"our_figure", figure(row.our_figure)},
                               {"explanation", row.explanation}});
    std::printf("%s\n  published  %s\n  ours       %s\n  %s\n", row.what.c_str(),
                row.published.c_str(), row.ours.c_str(), row.explanation.c_str());
  }
  results["provenance"] = app::provenance(1);
  return results;
}

std::string tables_page(const nlohmann::ordered_json& results) {
  return comparisons_markdown(tables(results.value("profiles", "")));
}

}  // namespace millrace::bench
