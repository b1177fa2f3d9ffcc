#include "tools/run/stdin_labels.h"

#include <poll.h>
#include <unistd.h>

#include "io/source/live_labels.h"

namespace millrace::tools {

void StdinLabels::look(io::LiveLabels* labels,
                       const std::function<void(const std::string&)>& tell) {
  constexpr std::size_t kLongest = 4096;
  char bytes[kLongest];
  for (pollfd input{STDIN_FILENO, POLLIN, 0}; open_ && poll(&input, 1, 0) > 0;) {
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    open_ = count > 0;
    for (ssize_t i = 0; i < count; ++i) {
      if (bytes[i] != '\n') {
        if (line_.size() <= kLongest) line_ += bytes[i];
        continue;
      }
      const std::string wrong = line_.empty() ? "" : labels->hear(line_);
      if (!wrong.empty()) tell("task.labels: " + wrong);
      line_.clear();
    }
  }
}

}  // namespace millrace::tools
