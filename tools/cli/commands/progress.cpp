#include "tools/cli/commands/progress.h"

#include <sys/ioctl.h>  // terminal width
#include <unistd.h>     // isatty

#include <chrono>  // rate of lines
#include <cstdio>  // stderr

namespace millrace::cli {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string fitted(const std::string& line) {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? line.substr(0, size.ws_col - 1) : line;
}

}  // namespace

Progress::Progress(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO)) {}

bool Progress::due() const {
  return !quiet_ && now() >= next_;
}

void Progress::show(const std::string& line) {
  next_ = now() + (terminal_ ? 0.2 : 5.0);
  if (terminal_) {
    std::fprintf(stderr, "\r%s\x1b[K", fitted(line).c_str());
    open_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

void Progress::finish() {
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

}  // namespace millrace::cli
