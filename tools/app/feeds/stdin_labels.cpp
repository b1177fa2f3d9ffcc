#include "tools/app/feeds/stdin_labels.h"

#include <poll.h>
#include <unistd.h>

#include "io/source/live_labels.h"

namespace millrace::app {

void StdinLabels::look(io::LiveLabels* labels,
                       const std::function<void(const std::string&)>& tell) {
  constexpr std::size_t kLongest = 4096;
  constexpr int kBlocks = 16;  // whoever writes without end must not keep the caller for ever
  const auto hear = [&] {
    const std::string wrong = line_.empty() ? "" : labels->hear(line_);
    if (!wrong.empty()) tell("task.labels: " + wrong);
    line_.clear();
  };
  char bytes[kLongest];
  pollfd input{STDIN_FILENO, POLLIN, 0};
  for (int block = 0; open_ && block < kBlocks && poll(&input, 1, 0) > 0; ++block) {
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    for (ssize_t i = 0; i < count; ++i) {
      if (bytes[i] == '\n') {
        hear();
      } else if (line_.size() <= kLongest) {
        line_ += bytes[i];
      }
    }
    open_ = count > 0;
    if (!open_) hear();  // the last line, which no newline ended
  }
}

}  // namespace millrace::app
