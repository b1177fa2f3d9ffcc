#include "stages/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "stages/json_bounds.h"

namespace millrace::stages {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");
constexpr std::uint64_t kHeaderCap = 16u << 20;

struct Entry {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end;
};

std::uint64_t element_count(const std::vector<std::int64_t>& shape) {
  constexpr std::uint64_t kMost = std::uint64_t(1) << 40;
  std::uint64_t n = 1, without_zeros = 1;  // strides are products too, and may overflow beside a 0
  for (const std::int64_t d : shape) {
    if (d < 0 || (d > 0 && without_zeros > kMost / std::uint64_t(d))) {
      throw WeightsError("a tensor's shape is impossible");
    }
    n *= std::uint64_t(d);
    if (d > 0) without_zeros *= std::uint64_t(d);
  }
  return n;
}

Entry parse_entry(const std::string& name, const nlohmann::json& value, std::uint64_t data_bytes) {
  constexpr std::size_t kMostDimensions = 64;  // LibTorch's limit
  if (name.find('\0') != name.npos) throw WeightsError("a tensor's name holds a NUL character");
  const std::string type = value.at("dtype");
  if (type != "F32") throw WeightsError("\"" + name + "\" is " + type + ", only F32 can be loaded");
  Entry entry{name, value.at("shape").get<std::vector<std::int64_t>>(),
              value.at("data_offsets").at(0), value.at("data_offsets").at(1)};
  if (entry.shape.size() > kMostDimensions)
    throw WeightsError("\"" + name + "\" has " + std::to_string(entry.shape.size()) +
                       " dimensions, the most are " + std::to_string(kMostDimensions));
  const std::uint64_t bytes = 4 * element_count(entry.shape);
  if (entry.begin > entry.end || entry.end > data_bytes || entry.end - entry.begin != bytes) {
    throw WeightsError("\"" + name + "\" does not fit the file (truncated?)");
  }
  return entry;
}

/// Sorts by offset. Ranges may not overlap, so tensors take no more than the file's bytes.
void sort_entries(std::vector<Entry>& entries) {
  std::ranges::sort(entries, {}, [](const Entry& one) { return std::pair(one.begin, one.end); });
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].begin < entries[i - 1].end)
      throw WeightsError("\"" + entries[i].name + "\" overlaps \"" + entries[i - 1].name + "\"");
  }
}

std::vector<Entry> parse_header(const std::string& text, std::uint64_t data_bytes,
                                Metadata& metadata) {
  std::vector<Entry> entries;
  // Those that would take far more memory than they have bytes.
  const JsonExtent extent = json_extent(text);
  if (extent.depth > 4 || extent.keys > 500'000 || extent.values > 1'000'000)
    throw WeightsError("not a safetensors file: its header is nested too deep, or too long");
  try {
    // Not ordered_json, whose key look-up is linear.
    const auto header = nlohmann::json::parse(text);
    if (!header.is_object())
      throw WeightsError("not a safetensors file: its header is no JSON object");
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        for (const auto& [key, words] : value.items())
          if (words.is_string()) metadata[key] = words;
      } else if (!name.ends_with("num_batches_tracked")) {  // an integer that nothing reads
        entries.push_back(parse_entry(name, value, data_bytes));
      }
    }
  } catch (const nlohmann::json::exception&) {
    throw WeightsError("not a safetensors file: its header is not the JSON it should be");
  }
  sort_entries(entries);
  return entries;
}

StateDict read(std::istream& file, Metadata* metadata) {
  file.seekg(0, std::ios::end);
  const std::uint64_t total = std::uint64_t(file.tellg());
  std::uint64_t size = 0;
  file.seekg(0);
  if (total < sizeof size || !file.read(reinterpret_cast<char*>(&size), sizeof size) ||
      size > kHeaderCap || size > total - sizeof size) {
    throw WeightsError("not a safetensors file: its header's size is wrong");
  }
  std::string text(size, '\0');
  file.read(text.data(), std::streamsize(size));
  const std::uint64_t data = sizeof size + size;
  StateDict state;
  Metadata words;
  for (const Entry& entry : parse_header(text, total - data, words)) {
    at::Tensor tensor = at::empty(entry.shape, at::kFloat);
    file.seekg(std::streamoff(data + entry.begin));
    file.read(static_cast<char*>(tensor.mutable_data_ptr()),
              std::streamsize(entry.end - entry.begin));
    state.emplace_back(entry.name, std::move(tensor));
  }
  if (!file) throw WeightsError("ends early");
  if (metadata) *metadata = std::move(words);
  return state;
}

}  // namespace

std::string to_safetensors(const StateDict& state, const Metadata& metadata) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
  std::uint64_t offset = 0;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : state) {
    if (header.contains(name)) continue;  // a buffer of several modules
    tensors.push_back(tensor);
    const std::uint64_t bytes = 4 * std::uint64_t(tensor.numel());
    header[name] = {{"dtype", "F32"},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = text.size();
  std::string file(sizeof size, '\0');
  std::memcpy(file.data(), &size, sizeof size);
  file += text;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor bytes = tensor.to(at::kFloat).contiguous();
    file.append(static_cast<const char*>(bytes.const_data_ptr()), 4 * std::size_t(bytes.numel()));
  }
  return file;
}

std::ifstream open_regular(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw WeightsError("is not a regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw WeightsError("cannot be opened");
  return file;
}

StateDict from_safetensors(std::string bytes, Metadata* metadata) {
  std::istringstream file(std::move(bytes));
  return read(file, metadata);
}

}  // namespace millrace::stages
