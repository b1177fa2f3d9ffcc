// `millrace tensorboard`: a run's log for TensorBoard to show.
#include <nlohmann/json.hpp>

#include <fstream>
#include <iostream>

#include "engine/format.h"
#include "io/files/whole_file.h"
#include "tools/app/config/config.h"
#include "tools/app/outputs/event_file.h"
#include "tools/cli/commands/command.h"

namespace millrace::cli {
namespace {

struct TensorboardArguments {
  std::string log;     ///< what output.log left
  std::string folder;  ///< where to write the event file
};

using Line = nlohmann::json;

/// Every number of the line except frame and time. Elements of a list are "stage_ms/0", ...
app::Scalars scalars_of(const Line& line) {
  app::Scalars scalars;
  for (const auto& [name, value] : line.items()) {
    if (name == "frame" || name == "time") continue;
    if (value.is_number()) scalars.emplace_back(name, value.get<double>());
    if (value.is_boolean()) scalars.emplace_back(name, value.get<bool>() ? 1.0 : 0.0);
    if (!value.is_array()) continue;
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (value[i].is_number())
        scalars.emplace_back(name + "/" + std::to_string(i), value[i].get<double>());
    }
  }
  return scalars;
}

bool is_of_a_frame(const Line& line) {
  return line.is_object() && line.contains("frame") && line["frame"].is_number_integer() &&
         line.contains("time") && line["time"].is_number();
}

constexpr std::size_t kLongestLine = 1 << 20;

struct Events {
  std::string bytes;
  double began = 0;  ///< seconds since 1970
  std::int64_t count = 0;
  std::int64_t left_out = 0;  ///< lines cut off by a crash or still being written
};

Events read_log(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw app::ConfigError(path + ": cannot be read");
  Events events;
  std::string text;
  while (std::getline(file, text)) {
    const Line line = text.size() > kLongestLine ? Line() : Line::parse(text, nullptr, false);
    if (!is_of_a_frame(line)) {
      ++events.left_out;
      continue;
    }
    const double time = line["time"];
    if (events.count++ == 0) {
      events.began = time;
      events.bytes = app::event_file_head(time);
    }
    events.bytes += app::event_record(time, line["frame"], scalars_of(line));
  }
  if (events.count == 0) throw app::ConfigError(path + ": holds no line that output.log wrote");
  return events;
}

int tensorboard(const TensorboardArguments& arguments) {
  const Events events = read_log(arguments.log);
  // TensorBoard looks for "tfevents" in the name. The same log gets the same name, so converting
  // it again when it has grown does not show the run twice.
  const std::string name = engine::format("events.out.tfevents.%010.0f.millrace", events.began);
  const std::string path = arguments.folder + "/" + name;
  io::write_whole(path, events.bytes);
  std::cout << path << ": " << events.count << " frames";
  if (events.left_out > 0) std::cout << ", " << events.left_out << " lines left out: no frame's";
  std::cout << "\n";
  return kDone;
}

void add_options(Options& options, TensorboardArguments& arguments) {
  options.add("log", arguments.log, "Log from output.log", {.required = true});
  options.add("folder", arguments.folder, "Folder to write to", {.required = true});
}

}  // namespace

const Command kTensorboard = {90, "tensorboard",
                              "Convert a log from output.log into an event file for TensorBoard",
                              add<TensorboardArguments, add_options, tensorboard>};

}  // namespace millrace::cli
