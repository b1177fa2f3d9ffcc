#include "tools/app/checkpoint_files.h"

#include <ATen/ops/isfinite.h>
#define XXH_INLINE_ALL  // no library at run time
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "io/files/whole_file.h"
#include "stages/safetensors.h"

namespace millrace::app {
namespace {

// The hash lies in the header that it covers: 128 bits in hexadecimal digits, taken while all of
// these digits were '0'.
constexpr char kKey[] = "xxh3_128";
constexpr std::size_t kDigits = 32;
constexpr std::size_t kHeaderSize = 8;  // bytes before the header

/// Where the hash's digits begin in a header; npos if it has none.
std::size_t digits_at(std::string_view header) {
  const std::string before = "\"" + std::string(kKey) + "\":\"";
  const std::size_t at = header.find(before);
  if (at == header.npos || header.size() - at < before.size() + kDigits) return header.npos;
  return at + before.size();
}

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~Hash() { XXH3_freeState(state_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  void add(std::string_view bytes) { XXH3_128bits_update(state_, bytes.data(), bytes.size()); }
  std::string digits() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_);
    char text[kDigits + 1];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    return text;
  }

 private:
  XXH3_state_t* const state_;
};

/// "" if the file holds no hash or the right one. Its header was found valid.
std::string damage(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t size = 0;
  file.read(reinterpret_cast<char*>(&size), kHeaderSize);
  std::string head(kHeaderSize + size, '\0');
  std::memcpy(head.data(), &size, kHeaderSize);
  file.read(head.data() + kHeaderSize, std::streamsize(size));
  const std::size_t at = digits_at(head);
  if (at == head.npos) return "";
  const std::string stored = head.substr(at, kDigits);
  std::fill_n(head.begin() + std::ptrdiff_t(at), kDigits, '0');
  Hash hash;
  hash.add(head);
  std::string block(1 << 20, '\0');
  while (file) {
    file.read(block.data(), std::streamsize(block.size()));
    hash.add({block.data(), std::size_t(file.gcount())});
  }
  return file.eof() && hash.digits() == stored ? "" : "its bytes are not those that were written";
}

/// Throws WeightsError that names the first tensor with a NaN or an infinity.
void require_finite(const stages::StateDict& state) {
  for (const auto& [name, tensor] : state) {
    if (!at::isfinite(tensor).all().item<bool>())
      throw stages::WeightsError("\"" + name + "\" holds numbers that are not finite");
  }
}

bool is_good(const std::string& path) {
  try {
    read_checked(path);
    return true;
  } catch (const stages::WeightsError&) {
    return false;
  }
}

}  // namespace

std::string to_hashed_safetensors(const stages::StateDict& state, stages::Metadata metadata) {
  metadata[kKey] = std::string(kDigits, '0');
  std::string bytes = stages::to_safetensors(state, metadata);
  Hash hash;
  hash.add(bytes);
  bytes.replace(digits_at(bytes), kDigits, hash.digits());
  return bytes;
}

stages::StateDict read_checked(const std::string& path, stages::Metadata* metadata) {
  stages::StateDict state = stages::read_safetensors(path, metadata);
  const std::string wrong = damage(path);
  if (!wrong.empty()) throw stages::WeightsError(wrong);
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

CheckpointFiles::Loaded CheckpointFiles::read() const {
  std::string why;
  stages::Metadata metadata;
  try {
    stages::StateDict state = read_checked(newest_, &metadata);
    return {std::move(state), newest_, "", std::move(metadata)};
  } catch (const stages::WeightsError& error) {
    why = newest_ + ": " + error.what();
  }
  try {
    stages::StateDict state = read_checked(previous_, &metadata);
    return {std::move(state), previous_, why + "; going on from " + kPrevious, std::move(metadata)};
  } catch (const stages::WeightsError&) {
    throw stages::WeightsError(why);
  }
}

}  // namespace millrace::app
