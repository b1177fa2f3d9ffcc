// Classes of frames, told by a file beside the stream.
#pragma once

#include <chrono>     // stamps
#include <cstdint>    // frame numbers
#include <memory>     // sources
#include <stdexcept>  // LabelError
#include <string>     // names
#include <vector>     // rows

#include "io/source/source.h"

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

/// Reads a CSV file whose first line is `frame,class` or `time,class`.
/// frame: the row's frame has that class. time: frames from that second on, until the next row's;
/// an empty class ends it. Keys ascend. Classes that are the numbers 0 to N-1 are taken as such;
/// others are names, numbered in alphabetical order. At most 64 MiB, 4 million
/// rows, 1000 classes.
/// Throws LabelError.
Labels read_labels(const std::string& path);

/// `source` with each frame's label set by `labels`. Frames that could not be decoded use up their
/// number, and a rewind begins again at 0.
std::unique_ptr<Source> with_labels(std::unique_ptr<Source> source, Labels labels);

}  // namespace millrace::io
