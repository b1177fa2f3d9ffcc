// The page of `millrace bench prediction`.
#include <algorithm>  // max
#include <cmath>      // abs

#include "engine/format.h"
#include "tools/bench/bench.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::format;

std::string table_of(const Json& results, const std::string& network) {
  std::string text;
  for (const Json& arm : results["arms"]) {
    if (arm["network"] != network) continue;
    if (text.empty()) {
      text = "## " + network + ", " + arm["size"].dump() + " x " + arm["size"].dump() +
             "\n\n| schedule | workers | stages | predicted ms | measured ms | ratio | others |\n"
             "|---|---|---|---|---|---|---|\n";
    }
    const double ratio = arm["ratio"];
    const bool off = std::abs(ratio - 1) > results["goal"].get<double>();
    text += format("| %s | %d | %d | %.3f | %.3f | %s%.3f%s | %.2f |\n",
                   arm["schedule"].get<std::string>().c_str(), arm["workers"].get<int>(),
                   arm["stages"].get<int>(), arm["predicted_ms"].get<double>(),
                   arm["measured_ms"].get<double>(), off ? "**" : "", ratio, off ? "**" : "",
                   arm["others_cores"].get<double>());
  }
  return text + "\n";
}

}  // namespace

std::string prediction_page(const Json& results) {
  double worst = 0;
  std::vector<std::string> networks;
  for (const Json& arm : results["arms"]) {
    worst = std::max(worst, std::abs(arm["ratio"].get<double>() - 1));
    if (networks.empty() || networks.back() != arm["network"]) networks.push_back(arm["network"]);
  }
  const Json& where = results["provenance"];
  std::string text =
      "# Predicted and measured steps\n\n"
      "    millrace bench prediction --json prediction.json --plot prediction.png --page "
      "prediction.md\n\n"
      "![How far predictions are off](prediction.png)\n\n"
      "Every schedule at 1 and 2 workers (interleaved: two stages each; 4 samples a minibatch). "
      "Predicted: each worker does its own actions alone, all at once and without waiting for "
      "anybody, which gives each stage's costs; the simulator plays the schedule's text against "
      "them, messages taking as long as it takes to wake up the other core. Measured: the "
      "pipeline's median step, over whole minibatches. Both in turn, medians of " +
      results["rounds"].dump() + " rounds of " + format("%g", results["seconds"].get<double>()) +
      " s; ratio: the median of predicted over measured of a round. Others: cores that other "
      "programs took meanwhile; figures above 0.05 are not to be trusted.\n\n";
  text += format("%d of %zu are within %.0f %%; the worst is off by %.1f %%.\n\n",
                 results["within"].get<int>(), results["arms"].size(),
                 100 * results["goal"].get<double>(), 100 * worst);
  for (const std::string& network : networks) text += table_of(results, network);
  return text + "Millrace " + where["version"].get<std::string>() + ", LibTorch " +
         where["libtorch"].get<std::string>() + ", " + where["cpu"].get<std::string>() + ".\n";
}

}  // namespace millrace::bench
