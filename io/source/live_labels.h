// Labels that people give during a run.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "io/source/labels.h"
#include "io/source/told_source.h"
#include "io/text/nearest_name.h"

namespace millrace::io {

/// Thread-safe.
class LiveLabels {
 public:
  explicit LiveLabels(std::vector<std::string> classes) : classes_(std::move(classes)) {}

  /// {"class": "day"} labels every frame from now on, null none; {"frame": 17, "class": "day"}
  /// labels that frame alone. Returns "" or a one-line error.
  std::string hear(std::string_view text) {
    LabelRow row;
    try {
      row = parse_label(text);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    if (row.time)
      return "during a run a label is for a frame number, or for all frames from now on";
    int label = -1;
    if (row.name) {
      const auto found = std::find(classes_.begin(), classes_.end(), *row.name);
      if (found == classes_.end()) {
        const std::vector<std::string_view> names(classes_.begin(), classes_.end());
        const std::string told = row.name->substr(0, 40);
        std::string known;
        for (const std::string& name : classes_) known += (known.empty() ? "" : ", ") + name;
        return "unknown class \"" + told + "\"; there are " + known + "; the nearest is \"" +
               nearest_name(told, names) + "\"";
      }
      label = int(found - classes_.begin());
    }
    const std::lock_guard lock(mutex_);
    if (!row.frame) {
      now_ = label;
      return "";
    }
    const auto frame = std::int64_t(*row.frame);
    if (frame < next_) return "frame " + std::to_string(frame) + " has gone by";
    if (to_come_.size() == kMostWaiting)
      return "more than 100000 labels of frames that have not arrived yet";
    to_come_[frame] = label;
    return "";
  }
  /// What frames from now on are labelled; "": nothing.
  std::string now() const {
    const std::lock_guard lock(mutex_);
    return now_ < 0 ? "" : classes_[std::size_t(now_)];
  }
  /// The class of frame `number`, the next one; -1: it has none.
  int of(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    next_ = number + 1;
    const auto told = to_come_.find(number);
    if (told == to_come_.end()) return now_;
    const int label = told->second;
    to_come_.erase(told);
    return label;
  }
  /// How many labelled frames have not arrived yet, and the last of them.
  std::pair<std::size_t, std::int64_t> waiting() const {
    const std::lock_guard lock(mutex_);
    return {to_come_.size(), to_come_.empty() ? -1 : to_come_.rbegin()->first};
  }

 private:
  static constexpr std::size_t kMostWaiting = 100'000;

  const std::vector<std::string> classes_;
  mutable std::mutex mutex_;
  int now_ = -1;
  std::int64_t next_ = 0;
  std::map<std::int64_t, int> to_come_;
};

inline std::unique_ptr<Teller> teller_of(std::shared_ptr<LiveLabels> labels) {
  return label_teller(
      [labels = std::move(labels)](auto number, auto) { return labels->of(number); });
}

}  // namespace millrace::io
