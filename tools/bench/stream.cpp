#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/schedule/registry.h"
#include "io/queue/resizer.h"
#include "io/source/source.h"
#include "tools/bench/measure.h"

namespace millrace::bench {

/// {"uri", "seed", "width", "height", "frames", "folder"}: writes a stream's first frames, as the
/// network sees them, to 00000.ppm and so on. Answers with their classes; -1: none.
const Question kStreamFrames("frames", [](const Json& question) -> Json {
  const int width = question.at("width"), height = question.at("height");
  const auto source = io::open_source(
      {.uri = question.at("uri"), .width = width, .height = height, .seed = question.at("seed")});
  const std::filesystem::path folder = question.at("folder").get<std::string>();
  io::Resizer resizer(width, height);
  Json labels = Json::array();
  io::Frame frame;
  for (int n = 0; n < question.at("frames"); ++n) {
    if (source->read(frame, std::chrono::seconds(10)) != io::ReadStatus::frame)
      throw std::runtime_error(question.at("uri").get<std::string>() + ": ends after " +
                               std::to_string(n) + " frames");
    const io::Frame& fit = resizer.fit(frame);
    char name[16];
    std::snprintf(name, sizeof name, "%05d.ppm", n);
    std::ofstream out(folder / name, std::ios::binary);
    out.exceptions(std::ios::badbit | std::ios::failbit);
    out << "P6\n" << width << " " << height << "\n255\n";
    out.write(reinterpret_cast<const char*>(fit.pixels.data()), std::streamsize(fit.pixels.size()));
    labels.push_back(frame.label);
  }
  return labels;
});

/// {}: [{"name", "flushes", "minibatches", "vertical_sync"}]: ScheduleEntry.
const Question kSchedules("schedules", [](const Json&) -> Json {
  Json list = Json::array();
  for (const engine::ScheduleEntry& entry : engine::schedule_table())
    list.push_back({{"name", entry.name},
                    {"flushes", entry.flushes},
                    {"minibatches", entry.minibatches},
                    {"vertical_sync", entry.vertical_sync}});
  return list;
});

}  // namespace millrace::bench
