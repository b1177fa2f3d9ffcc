// `millrace bench`: suites of measurements, as a user would publish them.
#pragma once

#include <nlohmann/json.hpp>  // results

#include <cstdint>  // sizes
#include <string>   // paths
#include <utility>
#include <vector>  // arms

namespace millrace::bench {

struct BenchArguments {
  std::string suite;                  ///< one of bench_suites()
  std::vector<std::string> networks;  ///< framerate: basic, layers, features, kernel; empty: all
  std::vector<std::int64_t> sizes;    ///< pixels a side; empty: the suite's own
  std::int64_t stages = 0;            ///< 1 to this many; 0: the suite's own number
  std::int64_t rounds = 5;            ///< how often the arms take turns
  std::string memory_format = "contiguous";  ///< or channels_last
  std::vector<std::string> captures;  ///< framerate, partime: graph, eager; empty: the suite's own
  std::string pytorch;                ///< framerate, ranks: a Python with torch; "": without
  double seconds = 0.5;               ///< an arm's turn
  bool quick = false;                 ///< partime, seeds: small, for a look
  std::vector<std::string> streams;   ///< learning: of vtest, film, scenes, labels; empty: all
  std::string arms;                   ///< learning, ranks: part of the names of those to run
  std::int64_t frames = 0;            ///< learning: of each stream; 0: 600
  std::string profiles;               ///< tables: PipeDream's "profiler"; "": without
  std::string json;                   ///< where to write the results; "": nowhere
  std::string plot;                   ///< where to write the plot, PNG
  std::string from;     ///< results of an earlier run to draw, instead; or to put streams into
  std::string page;     ///< where to write a page of them, Markdown
  std::string compare;  ///< results of another run to show ratios to
};

/// Runs the suite, or reads what it left, and writes what was asked for. Throws ConfigError.
void run_bench(const BenchArguments& arguments);
/// Names and one-line summaries.
std::vector<std::pair<std::string, std::string>> bench_suites();

/// Each suite returns {"suite", "arms": [{"arm", figures...}], "provenance"} and prints its table.
nlohmann::ordered_json bench_camera(const BenchArguments& arguments);
nlohmann::ordered_json bench_framerate(const BenchArguments& arguments);
nlohmann::ordered_json bench_ingest(const BenchArguments& arguments);
nlohmann::ordered_json bench_learning(const BenchArguments& arguments);
nlohmann::ordered_json bench_partime(const BenchArguments& arguments);
nlohmann::ordered_json bench_pipeline(const BenchArguments& arguments);
nlohmann::ordered_json bench_prediction(const BenchArguments& arguments);
nlohmann::ordered_json bench_ranks(const BenchArguments& arguments);
nlohmann::ordered_json bench_replay(const BenchArguments& arguments);
nlohmann::ordered_json bench_seeds(const BenchArguments& arguments);
nlohmann::ordered_json bench_tables(const BenchArguments& arguments);

/// The earlier results of bench learning, in which the newer ones' arms and streams stand anew.
nlohmann::ordered_json with_learning(nlohmann::ordered_json earlier,
                                     const nlohmann::ordered_json& newer);

/// What was asked for, or else the suite's own.
inline std::vector<std::int64_t> sizes_or(const BenchArguments& arguments,
                                          const std::vector<std::int64_t>& own) {
  return arguments.sizes.empty() ? own : arguments.sizes;
}

/// A suite's results as a picture.
void plot_ranks(const nlohmann::ordered_json& results, const std::string& path);
void plot_replay(const nlohmann::ordered_json& results, const std::string& path);

/// Markdown of a suite's results.
std::string framerate_page(const nlohmann::ordered_json& results);
std::string ingest_page(const nlohmann::ordered_json& results);
std::string learning_page(const nlohmann::ordered_json& results);
std::string partime_page(const nlohmann::ordered_json& results);
std::string prediction_page(const nlohmann::ordered_json& results);
std::string ranks_page(const nlohmann::ordered_json& results);
std::string seeds_page(const nlohmann::ordered_json& results);
std::string tables_page(const nlohmann::ordered_json& results);

/// Pictures of a suite that has several: `path` and others beside it.
void plot_partime(const nlohmann::ordered_json& results, const std::string& path);
void plot_seeds(const nlohmann::ordered_json& results, const std::string& path);

}  // namespace millrace::bench
