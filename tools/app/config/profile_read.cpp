// read_profile(): needs no LibTorch.
#include <fstream>
#include <iterator>

#include "engine/plan/pipedream_graph.h"
#include "engine/plan_files/profile_json.h"
#include "tools/app/config/profile_read.h"

namespace millrace::app {

engine::plan::Profile read_profile(const std::string& path, int frames) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw ConfigError(path + ": can't be read");
  try {
    return engine::plan::is_graph(text) ? engine::plan::profile_from_graph(text, path, frames)
                                        : engine::plan::profile_from_json(text, path);
  } catch (const engine::plan::ProfileError& error) {
    throw ConfigError(error.what());
  }
}

}  // namespace millrace::app
