#include "tools/bench/partime_answers.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/format.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::format;

constexpr double kSame = 1.05;  ///< ratios up to here are no difference

/// The figures that statements are made of: predicted K, at the ends of what was run.
struct Ends {
  explicit Ends(const Json& results)
      : results(results),
        small(partime_values(results, "size").front()),
        large(partime_values(results, "size").back()),
        most(int(partime_values(results, "stages").back())) {}

  std::optional<double> K(const std::string& network, std::int64_t size, int stages,
                          const std::string& capture = "graph") const {
    return partime_figure(results, network, size, stages, capture, "predicted", "K");
  }

  const Json& results;
  std::int64_t small, large;
  int most;
};

Json answer(const char* statement, bool yes, const std::string& figure) {
  return {{"statement", statement}, {"answer", yes ? "yes" : "no"}, {"figure", figure}};
}

Json deeper(const Ends& e, const char* statement) {
  const auto deep = e.K("layers", e.large, e.most), basic = e.K("basic", e.large, e.most);
  if (!deep || !basic) return {};
  return answer(statement, *deep > kSame * *basic,
                format("K of %d stages at %d px: %.2f with 30 layers, %.2f with 10", e.most,
                       int(e.large), *deep, *basic));
}

Json larger(const Ends& e, const char* statement) {
  std::string figure;
  bool all = true, any = false;
  for (const char* capture : {"graph", "eager"}) {
    const auto small = e.K("basic", e.small, e.most, capture),
               large = e.K("basic", e.large, e.most, capture);
    if (!small || !large) continue;
    any = true;
    all = all && *large > kSame * *small;
    figure += format("%s%s: K of %d stages %.2f at %d px, %.2f at %d", figure.empty() ? "" : "; ",
                     capture == std::string("graph") ? "recorded" : "eager", e.most, *small,
                     int(e.small), *large, int(e.large));
  }
  return any ? answer(statement, all, figure) : Json();
}

Json overheads(const Ends& e, const char* statement) {
  const auto step = [&](std::int64_t size, const char* capture) {
    return partime_figure(e.results, "basic", size, 1, capture, "measured", "step_ms");
  };
  const auto eager = step(e.small, "eager"), recorded = step(e.small, "graph");
  const auto eager_large = step(e.large, "eager"), recorded_large = step(e.large, "graph");
  if (!eager || !recorded || !eager_large || !recorded_large) return {};
  const double small = *eager / *recorded, large = *eager_large / *recorded_large;
  return answer(
      statement, small > 1.5,
      format("an eager step of one stage takes %.1f times the recorded one at %d px, %.1f "
             "times at %d",
             small, int(e.small), large, int(e.large)));
}

/// Whether the large kernel's speed-up goes with resolution as the others' do.
Json kernel(const Ends& e, const char* statement) {
  std::string figure;
  double own = 0, least = 1e300, most = 0;
  for (const char* network : {"basic", "layers", "features", "kernel"}) {
    const auto small = e.K(network, e.small, e.most), large = e.K(network, e.large, e.most);
    if (!small || !large) return {};
    const double growth = *large / *small;
    figure += format("%s%s %.2f", figure.empty() ? "" : ", ", network, growth);
    if (network == std::string("kernel")) {
      own = growth;
    } else {
      least = std::min(least, growth);
      most = std::max(most, growth);
    }
  }
  return answer(
      statement, own * kSame < least || own > kSame * most,
      format("K of %d stages at %d px over that at %d: ", e.most, int(e.large), int(e.small)) +
          figure);
}

/// The longest run of numbers of stages, from two on, over which K does not grow.
Json plateau(const Ends& e, const char* statement) {
  int begin = 0, length = 0;
  for (int first = 2; first <= e.most; ++first) {
    const auto K = e.K("basic", e.large, first);
    if (!K) return {};
    int last = first;
    for (auto next = e.K("basic", e.large, last + 1); next && *next < kSame * *K;
         next = e.K("basic", e.large, last + 1))
      ++last;
    if (last - first + 1 <= length) continue;
    begin = first;
    length = last - first + 1;
  }
  if (length == 0) return {};
  const auto from = e.K("basic", e.large, begin), to = e.K("basic", e.large, begin + length - 1),
             most = e.K("basic", e.large, e.most);
  return answer(statement, length > 2,
                format("10 layers at %d px: K = %.2f with %d stages, %.2f with %d, %.2f with %d",
                       int(e.large), *from, begin, *to, begin + length - 1, *most, e.most));
}

/// The size at which a step takes `ms`, on straight lines through the logarithms.
double size_within(const std::vector<std::pair<double, double>>& steps, double ms) {
  if (steps.empty() || steps.front().second > ms) return 0;
  double size = steps.front().first;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    const auto [small, quick] = steps[i - 1];
    const auto [large, slow] = steps[i];
    if (slow <= ms) {
      size = large;
      continue;
    }
    const double way = std::log(ms / quick) / std::log(slow / quick);
    return small * std::pow(large / small, way);
  }
  return size;
}

}  // namespace

std::optional<double> partime_figure(const Json& results, const std::string& network,
                                     std::int64_t size, int stages, const std::string& capture,
                                     const std::string& kind, const std::string& figure) {
  for (const Json& arm : results["arms"]) {
    if (arm["network"] == network && arm["size"] == size && arm["stages"] == stages &&
        arm["capture"] == capture && arm.contains(kind) && arm[kind][figure].is_number())
      return arm[kind][figure].get<double>();
  }
  return std::nullopt;
}

std::vector<std::int64_t> partime_values(const Json& results, const std::string& key) {
  std::set<std::int64_t> values;
  for (const Json& arm : results["arms"]) values.insert(arm[key].get<std::int64_t>());
  return {values.begin(), values.end()};
}

Json partime_statements(const Json& results) {
  const Ends ends(results);
  const struct {
    const char* statement;
    Json (*answer)(const Ends&, const char*);
  } table[] = {{"The deeper, the more linear", deeper},
               {"The higher the resolution, the higher the speed-up", larger},
               {"Without graphs overheads are too high", overheads},
               {"The large kernel is an exception", kernel},
               {"Shallow networks reach a plateau", plateau}};
  Json all = Json::array();
  for (const auto& [statement, answered] : table) {
    const Json found = answered(ends, statement);
    all.push_back(found.is_object() ? found
                                    : Json{{"statement", statement},
                                           {"answer", "-"},
                                           {"figure", "these arms were not run"}});
  }
  return all;
}

Json partime_cameras(const Json& results) {
  const std::vector<std::int64_t> sizes = partime_values(results, "size");
  const auto most = int(partime_values(results, "stages").back());
  const int cores = results["cores"];
  Json all = Json::array();
  std::set<std::string> networks;
  for (const Json& arm : results["arms"]) networks.insert(arm["network"].get<std::string>());
  for (const std::string& network : networks) {
    for (const auto& [stages, kind] :
         {std::pair(1, "measured"), std::pair(std::min(cores, most), "measured"),
          std::pair(most, "predicted")}) {
      std::vector<std::pair<double, double>> steps;
      for (const std::int64_t size : sizes) {
        if (const auto ms =
                partime_figure(results, network, size, stages, "graph", kind, "step_ms"))
          steps.emplace_back(double(size), *ms);
      }
      for (const int fps : {10, 25, 30, 60}) {
        if (!steps.empty())
          all.push_back({{"network", network},
                         {"stages", stages},
                         {"kind", kind},
                         {"fps", fps},
                         {"size", std::round(size_within(steps, 1e3 / fps))}});
      }
    }
  }
  return all;
}

}  // namespace millrace::bench
