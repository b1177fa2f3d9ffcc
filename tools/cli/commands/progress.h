// One line that tells how the run is doing.
#pragma once

#include <string>  // the line

namespace millrace::cli {

/// Writes progress to stderr: rewritten in place on a terminal, a line every few seconds elsewhere,
/// nothing if quiet. One thread.
class Progress {
 public:
  explicit Progress(bool quiet);
  /// Whether show() would write now: composing a line costs something.
  bool due() const;
  void show(const std::string& line);
  /// Ends the line, so that what follows starts on a fresh one.
  void finish();

 private:
  bool quiet_;
  bool terminal_;
  bool open_ = false;
  double next_ = 0;  ///< seconds of the steady clock
};

}  // namespace millrace::cli
