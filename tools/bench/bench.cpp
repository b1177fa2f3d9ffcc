#include "tools/bench/bench.h"

#include <algorithm>  // find
#include <cmath>      // nan
#include <cstdio>     // ratios
#include <fstream>    // results to compare with
#include <limits>     // nan
#include <map>        // rows by arm

#include "io/files/whole_file.h"
#include "io/plot/plot.h"
#include "tools/app/config/config.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

Json read_results(const std::string& option, const std::string& path, const std::string& suite) {
  std::ifstream file(path);
  const Json results = file ? Json::parse(file, nullptr, false) : Json();
  if (!results.is_object() || results.value("suite", "") != suite || !results.contains("arms")) {
    throw app::ConfigError(option + " " + path + ": holds no results of bench " + suite);
  }
  return results;
}

/// One line an arm that both have: each figure of this run over that of the other.
void print_ratios(const Json& mine, const Json& theirs) {
  std::printf("\nratios to %s (%s)\n", theirs["provenance"].value("version", "?").c_str(),
              theirs["provenance"].value("cpu", "?").c_str());
  std::map<std::string, Json> by_arm;
  for (const Json& arm : theirs["arms"]) by_arm[arm.at("arm")] = arm;
  for (const Json& arm : mine["arms"]) {
    const auto other = by_arm.find(arm.at("arm"));
    if (other == by_arm.end()) continue;
    std::printf("%-20s", arm["arm"].get<std::string>().c_str());
    for (const auto& [name, value] : arm.items()) {
      const auto before = other->second.find(name);
      if (!value.is_number_float() || before == other->second.end() || !before->is_number() ||
          before->get<double>() == 0)
        continue;
      std::printf("  %s %.3f", name.c_str(), value.get<double>() / before->get<double>());
    }
    std::printf("\n");
  }
}

/// A bar an arm by network and size, a group for each number of stages: frames a second, or, where
/// the limit was measured beside, which share of it, so that small and large networks fit one
/// chart.
void plot_framerate(const Json& results, const std::string& path) {
  const auto name_of = [](const Json& row) {
    return row["network"].get<std::string>() + " " +
           std::to_string(row["size"].get<std::int64_t>());
  };
  const Json peers = results.value("pytorch", Json::array());
  std::map<std::string, double> limit;  // frames a second
  for (const Json& row : peers) limit[name_of(row)] = 1e3 / row["limit_ms"].get<double>();
  io::BarChart chart{.title = "Frames learned a second", .y_label = "frames a second"};
  if (!limit.empty()) {
    chart.title += ", as a share of what the cores' multiply-adds allow";
    chart.y_label = "% of the limit";
  }
  std::map<std::string, std::size_t> column;
  for (const Json& arm : results["arms"]) {
    if (column.emplace(name_of(arm), column.size()).second)
      chart.categories.push_back(name_of(arm));
  }
  std::map<std::string, std::vector<double>> groups;
  const auto add = [&](const std::string& group, const std::string& name, double fps) {
    auto& values = groups[group];
    values.resize(column.size(), std::numeric_limits<double>::quiet_NaN());
    values[column.at(name)] = limit.empty() ? fps : 100 * fps / limit.at(name);
  };
  for (const Json& arm : results["arms"]) {
    const int stages = arm["stages"], threads = arm.value("threads", 1);
    const std::string capture = arm.value("capture", "auto");
    add(std::to_string(stages) + (stages == 1 ? " stage" : " stages") +
            (threads > 1 ? " of " + std::to_string(threads) + " threads" : "") +
            (capture == "auto" ? "" : ", " + capture),
        name_of(arm), arm["fps"]);
  }
  for (const Json& row : peers)
    add("PyTorch's best", name_of(row), 1e3 / row["pytorch_ms"].get<double>());
  for (auto& [label, values] : groups) chart.groups.emplace_back(label, std::move(values));
  io::write_bars(chart, path);
}

void plot_pipeline(const Json& results, const std::string& path) {
  io::BarChart chart{.title = "Engine time outside the stages' own work", .y_label = "% of a step"};
  std::vector<double> shares;
  for (const Json& arm : results["arms"]) {
    chart.categories.push_back(arm["arm"]);
    shares.push_back(arm["engine_share_percent"]);
  }
  chart.groups.emplace_back("hand-off", std::move(shares));
  io::write_bars(chart, path);
}

/// A bar a correction: the last 100 frames of the first stream with partime, a group for each
/// number of stages.
void plot_learning(const Json& results, const std::string& path) {
  io::BarChart chart{.title = "Loss over the last 100 frames of " +
                              results["streams"][0]["stream"].get<std::string>() + ", partime",
                     .y_label = "mean squared error"};
  std::map<std::int64_t, std::map<std::string, double>> losses;
  std::vector<std::string> names;
  for (const Json& arm : results["arms"]) {
    const bool mine = arm["stream"] == results["streams"][0]["stream"] && arm["every"] == 1;
    if (!mine || (arm["schedule"] != "partime" && arm["schedule"] != "sequential")) continue;
    const std::string optimizer = arm["optimizer"];
    if (optimizer.starts_with("sgd")) continue;
    if (arm["schedule"] == "sequential" && optimizer != "adam") continue;
    std::string name =
        arm["schedule"] == "sequential" ? "sequential" : arm["correction"].get<std::string>();
    if (name == "none" && arm["optimizer"] == "adam") name = "none, beta1 0.9";
    if (optimizer == "adam, beta1 0.5") name += ", beta1 0.5";
    if (arm.value("norm", "none") != "none") name += ", norm";
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    if (arm["last_100"]["mean"].is_number()) losses[arm["stages"]][name] = arm["last_100"]["mean"];
  }
  chart.categories = names;
  for (const auto& [stages, by_name] : losses) {
    std::vector<double> values;
    for (const std::string& name : names) {
      const auto found = by_name.find(name);
      values.push_back(found == by_name.end() ? std::numeric_limits<double>::quiet_NaN()
                                              : found->second);
    }
    chart.groups.emplace_back("N = " + std::to_string(stages), std::move(values));
  }
  io::write_bars(chart, path);
}

/// A group a network, a bar a number of workers and schedule: by how much a prediction is off.
void plot_prediction(const Json& results, const std::string& path) {
  io::BarChart chart{.title = "Predicted step against the measured one", .y_label = "% off"};
  std::map<std::string, std::vector<double>> groups;
  for (const Json& arm : results["arms"]) {
    const std::string column = arm["workers"].dump() + " " + arm["schedule"].get<std::string>();
    if (std::find(chart.categories.begin(), chart.categories.end(), column) ==
        chart.categories.end())
      chart.categories.push_back(column);
    groups[arm["network"]].push_back(100 * (arm["ratio"].get<double>() - 1));
  }
  for (auto& [network, values] : groups) chart.groups.emplace_back(network, std::move(values));
  io::write_bars(chart, path);
}

struct Suite {
  const char* summary;
  Json (*run)(const BenchArguments&);
  void (*plot)(const Json&, const std::string& path);  ///< null: it has none
  std::string (*page)(const Json&) = nullptr;          ///< null: it has none
};

const std::map<std::string, Suite>& suites() {
  static const std::map<std::string, Suite> table = {
      {"camera", {"from a picture that an RTSP camera shows to its prediction", bench_camera}},
      {"framerate",
       {"networks by size, stages and threads, beside PyTorch and the cores' limit",
        bench_framerate, plot_framerate, framerate_page}},
      {"ingest",
       {"from a decoded frame to a sample, and from thread to thread", bench_ingest, nullptr,
        ingest_page}},
      {"learning",
       {"rules and corrections on streams", bench_learning, plot_learning, learning_page}},
      {"partime",
       {"the PARTIME paper's experiments, measured and predicted", bench_partime, plot_partime,
        partime_page}},
      {"pipeline", {"the engine's own cost", bench_pipeline, plot_pipeline}},
      {"prediction",
       {"the simulator's word against the clock", bench_prediction, plot_prediction,
        prediction_page}},
      {"ranks",
       {"several processes over MPI, beside one and beside PyTorch", bench_ranks, plot_ranks,
        ranks_page}},
      {"replay",
       {"learning again from kept samples, on scenes that come back", bench_replay, plot_replay}},
      {"seeds",
       {"the other pipelines' claims beside steps and bytes", bench_seeds, plot_seeds, seeds_page}},
      {"tables", {"published figures, planned again", bench_tables, nullptr, tables_page}},
  };
  return table;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> bench_suites() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [name, suite] : suites()) all.emplace_back(name, suite.summary);
  return all;
}

void run_bench(const BenchArguments& arguments) {
  const Suite& suite = suites().at(arguments.suite);
  if (!arguments.plot.empty() && !suite.plot)
    throw app::ConfigError("--plot: bench " + arguments.suite + " has no plot");
  const auto& networks = arguments.networks;
  if (arguments.suite != "framerate" &&
      std::find(networks.begin(), networks.end(), "resnet18") != networks.end())
    throw app::ConfigError("--networks: resnet18 is for bench framerate");
  if (!arguments.page.empty() && !suite.page)
    throw app::ConfigError("--page: bench " + arguments.suite + " has no page");
  const Json other = arguments.compare.empty()
                         ? Json()
                         : read_results("--compare", arguments.compare, arguments.suite);
  Json results;
  if (!arguments.from.empty()) results = read_results("--from", arguments.from, arguments.suite);
  if (results.is_null()) {
    results = suite.run(arguments);
  } else if (arguments.suite == "learning" && !arguments.streams.empty()) {
    results = with_learning(std::move(results), suite.run(arguments));
  }
  if (!arguments.compare.empty()) print_ratios(results, other);
  if (!arguments.json.empty()) io::write_whole(arguments.json, results.dump(2) + "\n");
  if (!arguments.page.empty()) io::write_whole(arguments.page, suite.page(results));
  if (!arguments.plot.empty()) suite.plot(results, arguments.plot);
}

}  // namespace millrace::bench
