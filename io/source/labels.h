// Classes of frames, told by a file beside the stream.
#pragma once

#include <chrono>     // stamps
#include <cstdint>    // frame numbers
#include <memory>     // tellers
#include <stdexcept>  // LabelError
#include <string>     // names
#include <utility>    // pairs
#include <vector>     // rows

#include "io/source/told_source.h"

namespace millrace::io {

/// A label file that can't be used: "FILE:LINE: what is wrong".
struct LabelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A plain value; reading it is thread-safe.
class Labels {
 public:
  /// The class of frame `number` (from 0) at `pts` since the stream's start; -1: none is told.
  int of(std::int64_t number, std::chrono::nanoseconds pts) const;
  /// Their names; a class's number is its place here.
  const std::vector<std::string>& classes() const { return classes_; }
  /// Rows of frames from number `frames` on, and the last row's frame; none where rows are of
  /// times.
  std::pair<std::size_t, std::int64_t> beyond(std::int64_t frames) const;

 private:
  struct Row {
    double key = 0;  ///< frame number, or seconds
    int label = -1;  ///< -1: none from here on
  };
  friend class LabelReader;

  bool by_time_ = false;
  std::vector<Row> rows_;  ///< keys ascend
  std::vector<std::string> classes_;
};

/// Reads a CSV file whose first line is `frame,class` or `time,class`, or JSON lines as
/// {"frame": 17, "class": "day"}, all of frames or all of times.
/// frame: the row's frame has that class. time: frames from that second on, until the next row's;
/// an empty class (null) ends it. Keys ascend. Classes that are the numbers 0 to N-1 are taken as
/// such; others are names, numbered in alphabetical order. At most 64 MiB, 4 million rows, 1000
/// classes. Throws LabelError.
Labels read_labels(const std::string& path);

std::unique_ptr<Teller> teller_of(Labels labels);

}  // namespace millrace::io
