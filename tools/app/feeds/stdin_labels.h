// Labels that come in lines over standard input.
#pragma once

#include <functional>
#include <string>

namespace millrace::io {
class LiveLabels;
}

namespace millrace::app {

/// Thread-bound; never waits.
class StdinLabels {
 public:
  explicit StdinLabels(bool open) : open_(open) {}
  /// Gives `labels` the lines that have come; `tell`: what is wrong with one.
  void look(io::LiveLabels* labels, const std::function<void(const std::string&)>& tell);

 private:
  bool open_;  ///< until its end
  std::string line_;
};

}  // namespace millrace::app
