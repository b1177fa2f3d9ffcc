// `millrace bench tables`: what others have published, and what plan and simulate make of the same
// networks and machines. Measures nothing: the same everywhere.
#include <cstdio>  // table

#include "engine/plan/known_networks.h"
#include "engine/plan/published.h"
#include "tools/bench.h"
#include "tools/provenance.h"

namespace millrace::tools {

nlohmann::ordered_json bench_tables(const BenchArguments&) {
  using Json = nlohmann::ordered_json;
  Json results = {{"suite", "tables"}, {"arms", Json::array()}};
  for (const engine::plan::Comparison& row :
       engine::plan::published_tables(engine::plan::worked_out_networks())) {
    const auto figure = [](const std::optional<double>& value) {
      return value ? Json(*value) : Json(nullptr);
    };
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
  results["provenance"] = provenance(1);
  return results;
}

std::string tables_page(const nlohmann::ordered_json&) {
  return engine::plan::comparisons_markdown(
      engine::plan::published_tables(engine::plan::worked_out_networks()));
}

}  // namespace millrace::tools
