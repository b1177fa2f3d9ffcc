#include "engine/plan/profile.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "engine/format.h"

namespace millrace::engine::plan {
namespace {

std::string place(const Profile& profile, std::size_t index) {
  return "module " + std::to_string(index) + " (" + profile.modules[index].name + ")";
}

void check_number(double value, const std::string& where, const std::string& field) {
  if (!std::isfinite(value)) throw ProfileError(where + ": " + field + " is not a number");
  if (value < 0) throw ProfileError(where + ": " + field + " is negative");
  if (value > 1e15) throw ProfileError(where + ": " + field + " is above 1e15");
}

void check_module(const ModuleProfile& module, const std::string& where) {
  for (const auto& [field, time] : kTimes) {
    check_number((module.*time).median, where, field);
    check_number((module.*time).spread, where, std::string(field) + "'s spread");
  }
  for (const auto& [field, size] : kSizes) check_number(module.bytes.*size, where, field);
  check_number(module.tensor_bytes, where, "tensor_bytes");
  check_number(module.tensor_gradient_bytes, where, "tensor_gradient_bytes");
  for (const auto& [ways, ms] : module.parts) {
    if (ways < 2) throw ProfileError(where + ": tensor_ms of " + std::to_string(ways) + " parts");
    for (const double part : {ms.forward, ms.input_gradient, ms.weight_gradient, ms.update})
      check_number(part, where, "tensor_ms");
  }
  if (module.tensor_ways < 1) throw ProfileError(where + ": tensor_ways is less than 1");
}

void check_threads(const std::vector<double>& speedup) {
  if (speedup.empty() || speedup.front() != 1.0) {
    throw ProfileError("thread_speedup: its first value, one core's, must be 1");
  }
  for (std::size_t i = 0; i < speedup.size(); ++i) {
    if (!std::isfinite(speedup[i]) || speedup[i] <= 0) {
      throw ProfileError("thread_speedup: the value for " + std::to_string(i + 1) +
                         " cores is not positive");
    }
  }
}

// PipeDream's graph.txt.

struct Layer {
  std::string id, description;
  double forward = 0, backward = 0, activation = 0, parameters = 0;
  std::vector<int> readers;
  int reads = 0;  ///< layers it reads that are not in the chain yet
};

class Reader {
 public:
  Reader(const std::string& text, const std::string& name) : name_(name), lines_(text) {}

  std::vector<Layer> read() {
    for (std::string line; std::getline(lines_, line);) {
      ++number_;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.empty()) continue;
      line.front() == '\t' ? edge(line.substr(1)) : layer(line);
    }
    if (layers_.empty()) fail("there are no layers");
    return std::move(layers_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ProfileError(name_ + ":" + std::to_string(number_) + ": " + what);
  }

  void layer(const std::string& line) {
    const std::vector<std::string> parts = split(line, " -- ");
    if (parts.size() < 3) fail("a layer is \"NAME -- WHAT -- FIGURES\"");
    Layer layer{parts[0], parts[1]};
    layer.forward = figure(parts[2], "forward_compute_time");
    layer.backward = figure(parts[2], "backward_compute_time");
    layer.activation = figure(parts[2], "activation_size");
    layer.parameters = figure(parts[2], "parameter_size");
    if (!index_.emplace(layer.id, int(layers_.size())).second) fail("second " + layer.id);
    layers_.push_back(layer);
  }

  /// A number, or the sum of "[a; b; c]".
  double figure(const std::string& figures, const std::string& field) const {
    const std::size_t at = figures.find(field + "=");
    if (at == std::string::npos) fail(field + " is missing");
    const char* from = figures.c_str() + at + field.size() + 1;
    double sum = 0;
    const bool list = *from == '[';
    for (from += list;; ++from) {
      char* end = nullptr;
      const double value = std::strtod(from, &end);
      if (end == from) fail(field + " is not a number");
      if (value < 0) fail(field + " is negative");
      if (!std::isfinite(value)) fail(field + " is not finite");
      sum += value;
      from = end;
      if (!list || *from != ';') return sum;
    }
  }

  void edge(const std::string& line) {
    const std::vector<std::string> ends = split(line, " -- ");
    if (ends.size() != 2) fail("an edge is \"NAME -- NAME\"");
    const auto from = index_.find(ends[0]), to = index_.find(ends[1]);
    if (from == index_.end()) fail("no layer is called " + ends[0]);
    if (to == index_.end()) fail("no layer is called " + ends[1]);
    layers_[from->second].readers.push_back(to->second);
    ++layers_[to->second].reads;
  }

  std::string name_;
  std::istringstream lines_;
  int number_ = 0;
  std::vector<Layer> layers_;
  std::map<std::string, int> index_;
};

/// The number in "node17"; names without a number sort last.
int number_of(const Layer& layer) {
  const std::size_t at = layer.id.find_first_of("0123456789");
  return at == std::string::npos ? 1 << 30 : std::atoi(layer.id.c_str() + at);
}

/// A topological order, lowest number first.
std::vector<int> chain_of(std::vector<Layer> layers, const std::string& name) {
  std::set<std::pair<int, int>> ready;  // number, index
  const auto add_ready = [&](int index) {
    if (layers[index].reads == 0) ready.insert({number_of(layers[index]), index});
  };
  for (std::size_t i = 0; i < layers.size(); ++i) add_ready(int(i));
  std::vector<int> order;
  while (!ready.empty()) {
    order.push_back(ready.extract(ready.begin()).value().second);
    for (const int reader : layers[order.back()].readers) {
      --layers[reader].reads;
      add_ready(reader);
    }
  }
  if (order.size() < layers.size()) throw ProfileError(name + ": the edges form a cycle");
  return order;
}

ModuleProfile module_of(const Layer& layer, bool first) {
  ModuleProfile module;
  module.name = layer.id + " " + layer.description.substr(0, layer.description.find('('));
  module.forward.median = layer.forward;
  const double for_weights = first ? 1.0 : layer.parameters > 0 ? 0.5 : 0.0;
  module.weight_gradient.median = for_weights * layer.backward;
  module.input_gradient.median = (1 - for_weights) * layer.backward;
  module.bytes.weight = layer.parameters;
  module.bytes.stash = layer.activation;
  return module;
}

}  // namespace

std::vector<double> speeds_that_help(const std::vector<Measured>& speeds) {
  std::vector<double> helpful = {1.0};
  for (std::size_t i = 1; i < speeds.size(); ++i) {
    if (!(speeds[i].median - speeds[i].spread > helpful.back())) break;
    helpful.push_back(speeds[i].median);
  }
  return helpful;
}

void check_profile(const Profile& profile) {
  if (profile.modules.empty()) throw ProfileError("modules: there are none");
  if (profile.frames < 1) throw ProfileError("frames: less than 1");
  check_number(profile.input_bytes, "profile", "input_bytes");
  for (std::size_t i = 0; i < profile.modules.size(); ++i)
    check_module(profile.modules[i], place(profile, i));
  if (profile.modules.front().input_gradient.median > 0) {
    throw ProfileError(place(profile, 0) +
                       ": input_gradient must be 0: the first module needs none");
  }
  check_threads(profile.thread_speedup);
  for (const HandOff& hand_off : profile.hand_offs) {
    for (const auto& [bytes, ms] : hand_off.points) {
      check_number(bytes, "hand-off " + hand_off.between, "bytes");
      check_number(ms, "hand-off " + hand_off.between, "ms");
    }
  }
}

Link fit_link(const std::vector<std::pair<double, double>>& points) {
  if (points.empty()) return {};
  const double n = double(points.size());
  double x = 0, y = 0, square = 0, product = 0, xx = 0, xy = 0;
  for (const auto& [bytes, ms] : points) {
    x += bytes / n;
    y += ms / n;
    square += bytes * bytes;
    product += bytes * ms;
  }
  for (const auto& [bytes, ms] : points) {
    xx += (bytes - x) * (bytes - x);
    xy += (bytes - x) * (ms - y);
  }
  double slope = xx > 0 ? std::max(0.0, xy / xx) : 0.0;
  double latency = y - slope * x;
  if (latency < 0) {  // the best admissible line goes through the origin
    latency = 0;
    slope = product / square;
  }
  return {latency, slope > 0 ? 1.0 / slope : 0.0};
}

Profile profile_from_graph(const std::string& text, const std::string& name, int frames) {
  const std::vector<Layer> layers = Reader(text, name).read();
  std::vector<int> chain;
  for (const int layer : chain_of(layers, name)) {
    if (!layers[layer].description.starts_with("Input")) chain.push_back(layer);
  }
  std::vector<int> place(layers.size(), -1);
  for (std::size_t i = 0; i < chain.size(); ++i) place[chain[i]] = int(i);
  // [position in the chain]: bytes alive behind it
  std::vector<double> crossing(chain.size(), 0.0);
  Profile profile;
  profile.network = name;
  profile.source = name + " (PipeDream's form)";
  profile.frames = frames;
  for (const int index : chain) {
    int last = place[index];
    for (const int reader : layers[index].readers) last = std::max(last, place[reader]);
    for (int at = place[index]; at < last; ++at) crossing[at] += layers[index].activation;
    profile.modules.push_back(module_of(layers[index], profile.modules.empty()));
  }
  if (profile.modules.empty()) throw ProfileError(name + ": there are no layers but inputs");
  for (std::size_t i = 0; i < chain.size(); ++i) {
    profile.modules[i].bytes.activation = profile.modules[i].bytes.gradient = crossing[i];
  }
  check_profile(profile);
  return profile;
}

bool is_graph(const std::string& text) {
  const std::string first = text.substr(0, text.find('\n'));
  return first.find(" -- ") != std::string::npos &&
         first.find("forward_compute_time=") != std::string::npos;
}

}  // namespace millrace::engine::plan
