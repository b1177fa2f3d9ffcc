#include <unistd.h>

#include <chrono>

#include "io/network/dial.h"
#include "io/source/source_reconnecting.h"
#include "io/source/uri.h"

namespace millrace::io {
namespace {

constexpr std::chrono::milliseconds kInterval(250);
// A host this silent is off, or a cable is out.
constexpr std::chrono::milliseconds kNoAnswer(1000);

/// Tries a server's addresses in turn.
class PortProbe {
 public:
  explicit PortProbe(std::vector<Address> addresses) : addresses_(std::move(addresses)) {}

  std::optional<bool> poll() {
    const Clock::time_point now = Clock::now();
    if (!dial_) {
      if (now < asked_ + kInterval) return std::nullopt;
      asked_ = now;
      dial_.emplace(addresses_[next_]);
    }
    const std::optional<int> result = dial_->result();
    if (!result && now <= asked_ + kNoAnswer) return std::nullopt;
    dial_.reset();
    next_ = result == 0 ? 0 : (next_ + 1) % addresses_.size();
    if (result == 0 || next_ == 0) return result == 0;
    return std::nullopt;
  }

 private:
  const std::vector<Address> addresses_;
  std::size_t next_ = 0;      // address to ask
  std::optional<Dial> dial_;  // while awaiting an answer
  Clock::time_point asked_;
};

}  // namespace

OriginProbe make_origin_probe(const std::string& uri) {
  const Uri parts = split_uri(uri);
  if (parts.scheme == "v4l2")
    return [device = file_path(parts)] { return ::access(device.c_str(), R_OK) == 0; };
  const SourceKind* const kind = source_kind(uri);
  const std::string usual = kind ? kind->port : "";
  if (usual.empty()) return nullptr;
  const Authority at = authority(parts);
  std::vector<Address> addresses = addresses_of(at.host, at.port.empty() ? usual : at.port);
  if (addresses.empty()) return nullptr;
  return [probe = std::make_shared<PortProbe>(std::move(addresses))] { return probe->poll(); };
}

}  // namespace millrace::io
