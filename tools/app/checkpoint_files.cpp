#include "tools/app/checkpoint_files.h"

#include <ATen/ops/isfinite.h>
#define XXH_INLINE_ALL  // no run-time library
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "io/files/whole_file.h"
#include "stages/parameters.h"

namespace millrace::app {
namespace {

// The hash is part of the header that it covers: 128 bits as hexadecimal digits, computed with each
// digit set to '0'.
constexpr char kKey[] = "xxh3_128";
constexpr std::size_t kDigits = 32;
constexpr std::size_t kHeaderSize = 8;

/// Where the hash's digits begin in a header; npos: no hash.
std::size_t digits_at(std::string_view header) {
  const std::string before = "\"" + std::string(kKey) + "\":\"";
  const std::size_t at = header.find(before);
  if (at == header.npos || header.size() - at < before.size() + kDigits) return header.npos;
  return at + before.size();
}

std::string hash_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  char text[kDigits + 1];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

std::string to_hashed_safetensors(const stages::StateDict& state, stages::Metadata metadata) {
  metadata[kKey] = std::string(kDigits, '0');
  std::string bytes = stages::to_safetensors(state, metadata);
  bytes.replace(digits_at(bytes), kDigits, hash_of(bytes));
  return bytes;
}

/// Whether the file has no hash or the right one. Sets the hash's digits in `bytes` to '0'.
bool intact(std::string& bytes) {
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), std::min(bytes.size(), kHeaderSize));
  const std::size_t at = digits_at(std::string_view(bytes).substr(0, kHeaderSize + size));
  if (at == bytes.npos) return true;
  const std::string stored = bytes.substr(at, kDigits);
  bytes.replace(at, kDigits, kDigits, '0');
  return hash_of(bytes) == stored;
}

/// Throws WeightsError naming the first tensor with a NaN or an infinity.
void require_finite(const stages::StateDict& state) {
  for (const auto& [name, tensor] : state)
    if (!at::isfinite(tensor).all().item<bool>())
      throw stages::WeightsError("\"" + name + "\" holds numbers that are not finite");
}

bool is_good(const std::string& path) {
  try {
    read_checked(path);
    return true;
  } catch (const stages::WeightsError&) {
    return false;
  }
}

std::int64_t frames_of(const stages::Metadata& metadata) {
  const auto found = metadata.find("frames");
  const std::int64_t frames =
      found == metadata.end() ? 0 : std::strtoll(found->second.c_str(), nullptr, 10);
  constexpr std::int64_t kMost = 1'000'000'000'000'000;  // beyond any run, and sums can't overflow
  return frames < 0 || frames > kMost ? 0 : frames;
}

std::map<std::string, at::Tensor> optimizer_state(const stages::StateDict& all) {
  std::map<std::string, at::Tensor> state;
  for (const auto& [name, tensor] : all)
    if (name.starts_with(stages::kStateOf)) state.emplace(name, tensor);
  return state;
}

/// "mean, square": the buffers in `these` that `those` lacks or has in another shape.
std::string missing(const std::map<std::string, at::Tensor>& these,
                    const std::map<std::string, at::Tensor>& those) {
  std::set<std::string> buffers;
  for (const auto& [name, tensor] : these) {
    const auto found = those.find(name);
    if (found != those.end() && found->second.sizes() == tensor.sizes()) continue;
    const std::size_t end = name.find('.', stages::kStateOf.size());
    const bool head = name.starts_with(stages::kHeadStateOf);
    buffers.insert(head ? "auxiliary heads"
                        : name.substr(stages::kStateOf.size(), end - stages::kStateOf.size()));
  }
  std::string list;
  for (const std::string& buffer : buffers) list += (list.empty() ? "" : ", ") + buffer;
  return list;
}

}  // namespace

stages::StateDict read_checked(const std::string& path, stages::Metadata* metadata) {
  std::ifstream file = stages::open_regular(path);
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) throw stages::WeightsError("cannot be opened");
  std::string bytes(size, '\0');
  file.read(bytes.data(), std::streamsize(size));
  const bool good = intact(bytes);
  stages::StateDict state = stages::from_safetensors(std::move(bytes), metadata);
  if (!file || !good) throw stages::WeightsError("checksum mismatch");
  require_finite(state);
  return state;
}

CheckpointFiles::CheckpointFiles(std::string folder)
    : newest_(folder + "/" + kNewest), previous_(folder + "/" + kPrevious) {}

void CheckpointFiles::write(const stages::StateDict& state, const stages::Metadata& metadata) {
  try {
    require_finite(state);
  } catch (const stages::WeightsError& error) {
    throw std::runtime_error(newest_ + ": not written: " + error.what());
  }
  newest_is_good_ = newest_is_good_ || is_good(newest_);
  io::write_whole(newest_, to_hashed_safetensors(state, metadata),
                  newest_is_good_ ? kPrevious : "");
  newest_is_good_ = true;
}

bool CheckpointFiles::any() const {
  return std::filesystem::exists(newest_) || std::filesystem::exists(previous_);
}

Resumed CheckpointFiles::read() const {
  const auto load = [](const std::string& path, const std::string& note) {
    Resumed all{.path = path, .note = note};
    all.state = read_checked(path, &all.about);
    all.frames = frames_of(all.about);
    return all;
  };
  std::string why;
  try {
    return load(newest_, "");
  } catch (const stages::WeightsError& error) {
    why = newest_ + ": " + error.what();
  }
  try {
    return load(previous_, why + "; resuming from " + kPrevious);
  } catch (const stages::WeightsError&) {
    throw stages::WeightsError(why);
  }
}

void CheckpointFiles::set_aside() {
  for (const std::string& path : {newest_, previous_}) {
    std::error_code ignored;  // the damaged file is then overwritten
    std::filesystem::rename(path, std::filesystem::path(path).replace_extension("damaged"),
                            ignored);
  }
}

std::string unfit_state(const stages::StateDict& kept, const stages::StateDict& wanted) {
  const auto have = optimizer_state(kept), want = optimizer_state(wanted);
  if (have.empty()) return "";
  const std::string unused = missing(have, want), fresh = missing(want, have);
  std::string line;
  if (!unused.empty()) line = "saved state (" + unused + ") does not fit this run and is ignored";
  if (!fresh.empty()) line += (line.empty() ? "" : "; ") + fresh + " starts anew";
  return line;
}

}  // namespace millrace::app
