// The state of a source's connection, for threads other than the one that reads the source.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace millrace::io {

/// Written by the source, read by any thread; outlives the source. The frame counts of a run do not
/// include any of it: they start where a frame arrives.
class StreamHealth {
 public:
  std::atomic<bool> connected{true};
  std::atomic<std::int64_t> breaks{0};         ///< times the stream broke off or fell silent
  std::atomic<std::int64_t> attempts{0};       ///< to open it again, failed ones included
  std::atomic<std::int64_t> reconnects{0};     ///< attempts that gave a picture
  std::atomic<std::int64_t> frames_since{0};   ///< frames since it was last connected
  std::atomic<std::int64_t> lost_upstream{0};  ///< estimate: frames that never reached us
  std::atomic<std::int64_t> away_ms{0};        ///< in all breaks that are over

  /// Why it last broke off or could not be opened: one line without credentials; "": never.
  std::string last_error() const {
    const std::lock_guard lock(mutex_);
    return last_error_;
  }
  void set_last_error(const std::string& error) {
    const std::lock_guard lock(mutex_);
    last_error_ = error;
  }

 private:
  mutable std::mutex mutex_;
  std::string last_error_;
};

}  // namespace millrace::io
