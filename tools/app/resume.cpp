#include "tools/app/resume.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "stages/entry_names.h"

namespace millrace::app {
namespace {

std::map<std::string, at::Tensor> optimizer_state(const stages::StateDict& all) {
  std::map<std::string, at::Tensor> state;
  for (const auto& [name, tensor] : all) {
    if (name.starts_with(stages::kStateOf)) state.emplace(name, tensor);
  }
  return state;
}

/// "mean, square": the buffers that entries of `these` have and `those` have not, shape for shape.
std::string missing(const std::map<std::string, at::Tensor>& these,
                    const std::map<std::string, at::Tensor>& those) {
  std::set<std::string> buffers;
  for (const auto& [name, tensor] : these) {
    const auto found = those.find(name);
    if (found != those.end() && found->second.sizes() == tensor.sizes()) continue;
    const std::size_t end = name.find('.', stages::kStateOf.size());
    buffers.insert(name.substr(stages::kStateOf.size(), end - stages::kStateOf.size()));
  }
  std::string list;
  for (const std::string& buffer : buffers) list += (list.empty() ? "" : ", ") + buffer;
  return list;
}

}  // namespace

std::int64_t frames_of(const stages::Metadata& metadata) {
  const auto found = metadata.find("frames");
  std::int64_t frames = 0;
  if (found != metadata.end()) {
    const std::string& text = found->second;
    std::from_chars(text.data(), text.data() + text.size(), frames);
  }
  return std::max<std::int64_t>(0, frames);
}

std::string unfit_state(const stages::StateDict& kept, const stages::StateDict& wanted) {
  const auto have = optimizer_state(kept), want = optimizer_state(wanted);
  if (have.empty()) return "";
  const std::string unused = missing(have, want), fresh = missing(want, have);
  std::string line;
  if (!unused.empty())
    line = "the state kept (" + unused + ") does not fit this run and is left out";
  if (!fresh.empty()) line += (line.empty() ? "" : "; ") + fresh + " starts anew";
  return line;
}

}  // namespace millrace::app
