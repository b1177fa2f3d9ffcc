// `millrace bench tables`: what others have published, and what plan and simulate make of the same
// networks and machines. Measures nothing: the same everywhere.
#include <cstdio>  // table

#include "engine/plan/known_networks.h"
#include "engine/plan/profile_json.h"
#include "engine/plan/published.h"
#include "tools/bench.h"
#include "tools/provenance.h"

namespace millrace::tools {

nlohmann::ordered_json bench_tables(const BenchArguments&) {
  using Json = nlohmann::ordered_json;
  Json results = {{"suite", "tables"}, {"arms", Json::array()}};
  for (const Json& row : Json::parse(engine::plan::comparisons_to_json(
           engine::plan::published_tables(engine::plan::worked_out_networks())))) {
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

std::string tables_page(const nlohmann::ordered_json&) {
  return engine::plan::comparisons_markdown(
      engine::plan::published_tables(engine::plan::worked_out_networks()));
}

}  // namespace millrace::tools
