#include <bit>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/format.h"
#include "io/files/whole_file.h"
#include "tools/app/config/config.h"
#include "tools/cli/commands/command.h"

namespace millrace::cli {
namespace {

using Scalars = std::vector<std::pair<std::string, double>>;

// TensorBoard's event files, written by hand: not worth a dependency on protobuf. Records as in
// tensorflow/core/lib/io/record_writer.h, masked CRCs as in tensorflow/core/lib/hash/crc32c.h,
// Event and Summary as in tensorflow/core/util/event.proto and framework/summary.proto (all at
// github.com/tensorflow/tensorflow), protobuf's wire format as in
// protobuf.dev/programming-guides/encoding.

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78; RFC 3720, B.4), bit by bit.
std::uint32_t masked_crc(const std::string& bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  crc = ~crc;
  // Masked: CRCs of data that contains CRCs would be weak.
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof number; ++i) bytes += char(number >> (8 * i) & 0xff);
  return bytes;
}

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += char(0x80 | (number & 0x7f));
  return bytes + char(number);
}

enum Wire { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

std::string key(int field, Wire wire) {
  return varint(std::uint64_t(field) << 3 | wire);
}
std::string text_field(int field, const std::string& bytes) {
  return key(field, kLengthDelimited) + varint(bytes.size()) + bytes;
}

std::string record(const std::string& event) {
  const std::string length = little_endian(std::uint64_t(event.size()));
  return length + little_endian(masked_crc(length)) + event + little_endian(masked_crc(event));
}

// Event: 1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary.
std::string wall_time(double time) {
  return key(1, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(time));
}

// Summary: 1 value (repeated). Summary.Value: 1 tag (string), 2 simple_value (float).
std::string summary_field(const Scalars& scalars) {
  std::string values;
  for (const auto& [tag, value] : scalars) {
    values += text_field(1, text_field(1, tag) + key(2, kFixed32) +
                                little_endian(std::bit_cast<std::uint32_t>(float(value))));
  }
  return values;
}

/// The head of an event file. `time`: seconds since 1970.
std::string event_file_head(double time) {
  return record(wall_time(time) + text_field(3, "brain.Event:2"));
}

std::string event_record(double time, std::int64_t step, const Scalars& scalars) {
  return record(wall_time(time) + key(2, kVarint) + varint(std::uint64_t(step)) +
                text_field(5, summary_field(scalars)));
}

struct TensorboardArguments {
  std::string log;  ///< file written by output.log
  std::string folder;
};

using Line = nlohmann::json;

/// All numbers of a line but frame and time. List elements become "stage_ms/0", ...
Scalars scalars_of(const Line& line) {
  Scalars scalars;
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
      events.bytes = event_file_head(time);
    }
    events.bytes += event_record(time, line["frame"], scalars_of(line));
  }
  if (events.count == 0) throw app::ConfigError(path + ": holds no line that output.log wrote");
  return events;
}

int tensorboard(const TensorboardArguments& arguments) {
  const Events events = read_log(arguments.log);
  // TensorBoard looks for "tfevents" in the name. The name depends only on the log, so converting a
  // grown log again doesn't show the run twice.
  const std::string name = engine::format("events.out.tfevents.%010.0f.millrace", events.began);
  const std::string path = arguments.folder + "/" + name;
  io::write_whole(path, events.bytes);
  std::cout << path << ": " << events.count << " frames";
  if (events.left_out > 0) std::cout << ", " << events.left_out << " lines skipped: not frames";
  std::cout << "\n";
  return kDone;
}

void add_options(CLI::App& options, TensorboardArguments& arguments) {
  options.add_option("log", arguments.log, "Log from output.log")->required();
  options.add_option("folder", arguments.folder, "Folder to write to")->required();
}

}  // namespace

const Command kTensorboard = {90, "tensorboard",
                              "Convert a log from output.log into an event file for TensorBoard",
                              add<TensorboardArguments, add_options, tensorboard>};

}  // namespace millrace::cli
