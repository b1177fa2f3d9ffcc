#include "engine/plan/profile.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "engine/format.h"

namespace millrace::engine::plan {
namespace {

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

bool is_input(const Layer& layer) {
  return layer.description.rfind("Input", 0) == 0;
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

Profile profile_from_graph(const std::string& text, const std::string& name, int frames) {
  const std::vector<Layer> layers = Reader(text, name).read();
  std::vector<int> chain;
  for (const int layer : chain_of(layers, name)) {
    if (!is_input(layers[layer])) chain.push_back(layer);
  }
  std::vector<int> place(layers.size(), -1);
  for (std::size_t i = 0; i < chain.size(); ++i) place[chain[i]] = int(i);
  std::vector<double> crossing(chain.size(), 0.0);  // [position in the chain]: bytes alive behind
                                                    // it
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
