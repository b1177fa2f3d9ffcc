#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/source/source.h"

namespace millrace::io {

/// "FILE:LINE: what is wrong".
struct LabelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Labels {
 public:
  /// The class of frame `number` (from 0) at `pts` since the stream's start; -1: none.
  int of(std::int64_t number, std::chrono::nanoseconds pts) const;
  /// Names; a class's number is its index.
  const std::vector<std::string>& classes() const { return classes_; }
  /// Whether a label holds until the next one, as live ones do; otherwise for one frame.
  bool lasting() const { return by_time_; }
  /// Classes that no row names.
  std::vector<std::string> without_rows() const;
  /// Number of rows from frame `frames` on, and the last row's frame. {0, -1} for rows by time.
  std::pair<std::size_t, std::int64_t> beyond(std::int64_t frames) const;

 private:
  struct Row {
    double key = 0;  ///< frame number or seconds
    int label = -1;  ///< -1: none from here on
  };
  friend class LabelReader;

  bool by_time_ = false;
  std::vector<Row> rows_;  ///< keys ascend
  std::vector<std::string> classes_;
};

/// Reads a CSV file whose first line is `frame,class` or `time,class`, or JSON lines such as
/// {"frame": 17, "class": "day"}; all rows have frames, or all have times. A frame row labels that
/// frame alone, a time row all frames from that second to the next row; an empty class (null) means
/// none. Keys ascend. `classes`: the names in order; if empty, classes 0 to N-1 are used as they
/// are, and others are numbered alphabetically. At most 64 MiB, 4 million rows, 1000 classes.
/// Throws LabelError.
Labels read_labels(const std::string& path, std::vector<std::string> classes = {});

/// Labels that people give during a run. Thread-safe.
class LiveLabels {
 public:
  explicit LiveLabels(std::vector<std::string> classes) : classes_(std::move(classes)) {}

  /// {"class": "day"} labels every frame from now on, null none; {"frame": 17, "class": "day"}
  /// labels that frame alone; {"forget": "day"} takes back all that the class was taught. Returns
  /// "" or a one-line error.
  std::string hear(std::string_view text);
  /// Allows "forget", since the run remembers labelled frames. Labels that aren't for one frame
  /// then last for `limit`: a scene may change without notice.
  void remember(std::chrono::steady_clock::duration limit);
  /// Removes and returns the classes that are to be forgotten.
  std::set<int> take_forgotten();
  /// "": none
  std::string now() const;
  /// The class of frame `number`, the next one; -1: none.
  int of(std::int64_t number);
  /// Number of labelled frames still to arrive, and the last of them.
  std::pair<std::size_t, std::int64_t> waiting() const;

 private:
  using Clock = std::chrono::steady_clock;
  int label_now() const { return Clock::now() - heard_ < limit_ ? now_ : -1; }
  std::string forget(int label);

  const std::vector<std::string> classes_;
  mutable std::mutex mutex_;
  int now_ = -1;
  Clock::time_point heard_;  ///< now_
  Clock::duration limit_ = Clock::duration::max();
  std::int64_t next_ = 0;
  std::map<std::int64_t, int> to_come_;
  bool remembered_ = false;
  std::set<int> forgotten_;  ///< not taken yet
};

Teller teller_of(Labels labels);
Teller teller_of(std::shared_ptr<LiveLabels> labels);

}  // namespace millrace::io
