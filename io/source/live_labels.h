// Classes that people tell while frames come.
#pragma once

#include <map>          // frames to come
#include <memory>       // shared with who hears them
#include <mutex>        // between who tells and who reads
#include <string>       // names
#include <string_view>  // what they say
#include <vector>       // classes

#include "io/source/told_source.h"

namespace millrace::io {

/// Thread-safe.
class LiveLabels {
 public:
  explicit LiveLabels(std::vector<std::string> classes) : classes_(std::move(classes)) {}

  /// {"class": "day"}: of every frame from now on, null: of none; {"frame": 17, "class": "day"}: of
  /// that frame alone. Returns "", or what is wrong in a line.
  std::string hear(std::string_view text);
  /// The class of frame `number`, which is the next; -1: none was told.
  int of(std::int64_t number);
  /// Frames that were told of and did not come yet, and the last of them.
  std::pair<std::size_t, std::int64_t> waiting() const;

 private:
  const std::vector<std::string> classes_;
  mutable std::mutex mutex_;
  int now_ = -1;
  std::int64_t next_ = 0;
  std::map<std::int64_t, int> to_come_;
};

std::unique_ptr<Teller> teller_of(std::shared_ptr<LiveLabels> labels);

}  // namespace millrace::io
