// Labels that people give during a run.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "io/source/told_source.h"

namespace millrace::io {

/// Thread-safe.
class LiveLabels {
 public:
  explicit LiveLabels(std::vector<std::string> classes) : classes_(std::move(classes)) {}

  /// {"class": "day"} labels every frame from now on, null none; {"frame": 17, "class": "day"}
  /// labels that frame alone. Returns "" or a one-line error.
  std::string hear(std::string_view text);
  /// What frames from now on are labelled; "": nothing.
  std::string now() const;
  /// The class of frame `number`, the next one; -1: it has none.
  int of(std::int64_t number);
  /// How many labelled frames have not arrived yet, and the last of them.
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
