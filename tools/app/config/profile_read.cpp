#include "tools/app/config/profile_read.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/plan_files/profile_json.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/trainer.h"
#include "tools/app/assembly.h"

namespace millrace::app {

constexpr int kMostRepeats = 200;  // of a module, on a busy machine

engine::plan::Profile profile_of(const Config& config,
                                 std::vector<engine::plan::Measured>* speeds) {
  const engine::TrainerOptions options = assemble(config, sample_of(config));
  const stages::ImageShape& sample = options.sample;
  const bool programs = engine::runs_programs(options, 0), cuda = options.devices.front().cuda,
             recorded = engine::records_any(options) && engine::records(options, 0);
  engine::plan::Profile profile =
      engine::measure_profile(options, {.most_repeats = kMostRepeats,
                                        .device = options.devices.front(),
                                        .neighbours = !cuda,
                                        .recorded = recorded,
                                        .parts = !cuda});
  profile.network = model_of(config).preset + " at " + std::to_string(sample.width) + "x" +
                    std::to_string(sample.height);
  profile.source = std::string("measured by millrace " MILLRACE_VERSION) +
                   (programs   ? ", step programs"
                    : recorded ? ", recorded"
                               : ", operator by operator");
  profile.hand_offs = {engine::measure_hand_off()};
  if (cuda) return profile;
  const std::vector<engine::plan::Measured> tried =
      engine::measure_thread_speedup(options, programs);
  profile.thread_speedup = engine::plan::speeds_that_help(tried);
  if (speeds) *speeds = tried;
  return profile;
}

engine::plan::Profile read_profile(const std::string& path, int frames) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);  // a pipe is waited for
  std::ifstream file(regular ? path : "", std::ios::binary);
  if (!file) throw ConfigError(path + ": can't be read");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return engine::plan::is_graph(text) ? engine::plan::profile_from_graph(text, path, frames)
                                        : engine::plan::profile_from_json(text, path);
  } catch (const engine::plan::ProfileError& error) {
    throw ConfigError(error.what());
  }
}

}  // namespace millrace::app
