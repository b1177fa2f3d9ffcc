// How a source's connection fares, readable by any thread while another one reads the source.
#pragma once

#include <atomic>   // counters
#include <cstdint>  // counts
#include <mutex>    // the text
#include <string>   // why it broke

namespace millrace::io {

/// Written by the source alone, read by anyone; outlives the source. None of it enters the exact
/// account of frames, which begins where a frame arrives.
class StreamHealth {
 public:
  std::atomic<bool> connected{true};           ///< pictures may come; false while it is away
  std::atomic<std::int64_t> breaks{0};         ///< times the stream broke off or fell silent
  std::atomic<std::int64_t> attempts{0};       ///< times it was opened again, in vain or not
  std::atomic<std::int64_t> reconnects{0};     ///< times a picture came again
  std::atomic<std::int64_t> frames_since{0};   ///< frames since it was last connected
  std::atomic<std::int64_t> lost_upstream{0};  ///< estimate: frames that never reached us
  std::atomic<std::int64_t> away_ms{0};        ///< time without a stream, breaks that are over

  /// Why it last broke off or could not be opened; one line without credentials, empty if never.
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
