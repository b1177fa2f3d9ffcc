#include "io/source/source.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "io/network/dial.h"
#include "io/source/source_kinds.h"
#include "io/source/source_reconnecting.h"
#include "io/source/uri.h"

namespace millrace::io {
namespace {

std::vector<SourceKind>& kinds() {
  static std::vector<SourceKind> all = {
      {"file", "file:///PATH", "a video file; a bare path will do", "", false, open_file},
      {"rtsp", "rtsp://HOST:PORT/PATH", "a camera or a server", "554", true, open_stream},
      {"rtsps", "rtsps://HOST:PORT/PATH", "the same over TLS", "322", true, open_stream},
      {"http", "http://HOST:PORT/PATH", "a video, or a web camera", "80", false, open_stream},
      {"https", "https://HOST:PORT/PATH", "the same over TLS", "443", false, open_stream},
      {"v4l2", "v4l2:///dev/video0", "a camera of this machine", "", true, open_stream},
      {"gst", "gst:ELEMENT ! ELEMENT", "a GStreamer pipeline", "", false, open_stream},
      {"images", "images:DIR/%05d.png", "pictures: a pattern, a folder or a glob", "", false,
       open_images, check_images},
      {"synth", "synth:shapes", "a synthetic stream, the same on every machine", "", false,
       open_synth, check_synth},
  };
  return all;
}

const std::size_t own_kinds = kinds().size();  // plug-ins' follow

class ToldSource : public Source {
 public:
  ToldSource(std::unique_ptr<Source> source, Teller teller)
      : source_(std::move(source)), teller_(std::move(teller)) {}

  SourceInfo info() const override {
    SourceInfo info = source_->info();
    info.classes = std::max(info.classes, teller_.classes);
    return info;
  }
  ReadStatus read(Frame& out, std::chrono::milliseconds timeout) override {
    const ReadStatus status = source_->read(out, timeout);
    if (status == ReadStatus::corrupt) ++number_;
    if (status == ReadStatus::frame) {
      if (std::exchange(first_, false)) start_ = out.pts;
      teller_.tell(out, number_++, out.pts - start_);
    }
    return status;
  }
  bool rewind() override {
    number_ = 0;
    first_ = true;
    return source_->rewind() && teller_.rewind();
  }
  std::shared_ptr<const StreamHealth> health() const override { return source_->health(); }

 private:
  const std::unique_ptr<Source> source_;
  const Teller teller_;
  std::int64_t number_ = 0;  // of the next frame in this pass
  bool first_ = true;
  std::chrono::nanoseconds start_{0};  // stamp of this pass's first frame
};

/// Throws for a plug-in's frame that would be read beyond its end.
void require_readable(const Frame& frame, const SourceOptions& options) {
  if (frame.width > 0 && frame.height > 0 && frame.channels == options.channels &&
      frame.pixels.size() >= frame.bytes())
    return;
  throw source_error(options, "its plug-in gave a frame of " +
                                  size_text(frame.width, frame.height) + " with " +
                                  std::to_string(frame.channels) + " channels in " +
                                  std::to_string(frame.pixels.size()) + " bytes; " +
                                  std::to_string(options.channels) +
                                  " channels are due, each with a byte a pixel");
}

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
  static constexpr std::chrono::milliseconds kInterval{250};
  // A host this silent is off, or a cable is out.
  static constexpr std::chrono::milliseconds kNoAnswer{1000};

  const std::vector<Address> addresses_;
  std::size_t next_ = 0;      // address to ask
  std::optional<Dial> dial_;  // while awaiting an answer
  Clock::time_point asked_;
};

}  // namespace

std::span<const SourceKind> source_kinds() {
  return kinds();
}

void add_source_kind(const SourceKind& kind) {
  for (const SourceKind& other : kinds()) {
    if (std::string_view(other.scheme) == kind.scheme)
      throw std::invalid_argument(std::string("source ") + kind.scheme + ": is already registered");
  }
  kinds().push_back(kind);
}

const SourceKind* source_kind(const std::string& uri) {
  const Uri parts = split_uri(uri);
  const std::string scheme = parts.is_file() ? "file" : parts.scheme;
  for (const SourceKind& kind : kinds()) {
    if (scheme == kind.scheme) return &kind;
  }
  return nullptr;
}

std::string scheme_error(const std::string& uri) {
  if (uri.empty()) return "no URI is given";
  if (source_kind(uri)) return "";
  std::string known;
  for (const SourceKind& kind : kinds())
    known += (known.empty() ? "" : ", ") + std::string(kind.scheme);
  return "unknown scheme \"" + split_uri(uri).scheme + "\"; known ones: " + known;
}

void check_source(const SourceOptions& options) {
  const SourceKind* const kind = source_kind(options.uri);
  std::string wrong = scheme_error(options.uri);
  if (kind && *kind->port != '\0') wrong = authority_error(split_uri(options.uri));
  if (!wrong.empty()) throw source_error(options, wrong);
  if (kind->check) kind->check(options);
}

std::unique_ptr<Source> open_source(const SourceOptions& options) {
  if (options.channels != 1 && options.channels != 3)
    throw source_error(options, "channels must be 1 or 3");
  if (options.uri.empty()) throw SourceError("source: no URI is given");
  check_source(options);
  const SourceKind* const kind = source_kind(options.uri);
  std::unique_ptr<Source> source = kind->open(options);
  if (kind < kinds().data() + own_kinds) return source;
  if (!source) throw source_error(options, "its plug-in opened none");
  return with_teller(std::move(source), {[options](const Frame& frame, auto...) {
                       require_readable(frame, options);
                     }});
}

std::future<void> destroy(std::unique_ptr<Source> source) {
  std::packaged_task<void()> end([source = std::move(source)]() mutable { source.reset(); });
  std::future<void> gone = end.get_future();
  std::thread(std::move(end)).detach();
  return gone;
}

std::unique_ptr<Source> with_teller(std::unique_ptr<Source> source, Teller teller) {
  return std::make_unique<ToldSource>(std::move(source), std::move(teller));
}

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
