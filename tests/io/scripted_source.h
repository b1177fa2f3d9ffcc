#pragma once

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "io/source/source.h"

namespace millrace::io {

/// Frames at `pts`, by number corrupt, and what comes `then`.
struct Script {
  enum Then { ends, breaks, is_silent };

  std::vector<std::chrono::nanoseconds> pts;
  Then then = ends;
  std::vector<int> corrupt = {};
  bool rewinds = true;
  double fps = 100.0;
  std::size_t back = 0;  ///< number of the first frame after an outage
  double fps_back = 0;   ///< after that outage; 0: as before
  int width = 0;         ///< 0: each frame's number
};

/// `frames` times, a period apart from `first` on.
inline std::vector<std::chrono::nanoseconds> every(std::chrono::nanoseconds period, int frames,
                                                   std::chrono::nanoseconds first = {}) {
  std::vector<std::chrono::nanoseconds> pts;
  for (int n = 0; n < frames; ++n) pts.push_back(first + n * period);
  return pts;
}

/// Gives the frames of a script without waiting for them.
class ScriptedSource : public Source {
 public:
  explicit ScriptedSource(Script script) : script_(std::move(script)) {}

  SourceInfo info() const override {
    const bool other = health_->reconnects > 0 && script_.fps_back > 0;
    return {.width = script_.width, .fps = other ? script_.fps_back : script_.fps};
  }
  std::shared_ptr<const StreamHealth> health() const override { return health_; }
  ReadStatus read(Frame& out, std::chrono::milliseconds timeout) override {
    if (next_ == script_.pts.size()) {
      if (script_.then == Script::breaks) throw SourceError("scripted: cut");
      if (script_.then == Script::ends) return ReadStatus::end;
      std::this_thread::sleep_for(std::min(timeout, std::chrono::milliseconds(5)));
      return ReadStatus::timeout;
    }
    const std::size_t number = next_++;
    if (number > 0 && number == script_.back) ++health_->reconnects;
    out.pts = script_.pts[number];
    if (std::ranges::count(script_.corrupt, int(number)) > 0) return ReadStatus::corrupt;
    out.width = script_.width > 0 ? script_.width : int(number);
    return ReadStatus::frame;
  }
  bool rewind() override {
    next_ = 0;
    return script_.rewinds;
  }

 private:
  const Script script_;
  const std::shared_ptr<StreamHealth> health_ = std::make_shared<StreamHealth>();
  std::size_t next_ = 0;
};

}  // namespace millrace::io
