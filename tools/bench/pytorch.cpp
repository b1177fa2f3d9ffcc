#include "tools/bench/pytorch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <stdexcept>

namespace millrace::bench {
namespace {

const char* const kScript =
#include "tools/bench/pytorch_step.inc"
    ;

}  // namespace

PyTorch::PyTorch(const std::string& python) {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) throw std::runtime_error("no pipes for " + python);
  process_ = fork();
  if (process_ == 0) {
    dup2(down[0], STDIN_FILENO);
    dup2(up[1], STDOUT_FILENO);
    for (const int end : {down[0], down[1], up[0], up[1]}) close(end);
    execlp(python.c_str(), python.c_str(), "-c", kScript, nullptr);
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  to_ = fdopen(down[1], "w");
  from_ = fdopen(up[0], "r");
  if (process_ < 0 || !to_ || !from_) throw std::runtime_error("can't start " + python);
}

PyTorch::~PyTorch() {
  if (to_) std::fclose(to_);
  if (from_) std::fclose(from_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

double PyTorch::step_ms(const stages::ModelSpec& model, std::int64_t size, const std::string& mode,
                        int threads, double seconds) {
  std::fprintf(to_, "%s %lld %lld %lld %lld %s %d %f\n", model.preset.c_str(),
               static_cast<long long>(model.layers), static_cast<long long>(model.features),
               static_cast<long long>(model.kernel), static_cast<long long>(size), mode.c_str(),
               threads, seconds);
  std::fflush(to_);
  char line[4096];
  if (!std::fgets(line, sizeof line, from_))
    throw std::runtime_error("--pytorch: Python has gone; does it have torch?");
  char* end = line;
  const double ms = std::strtod(line, &end);
  if (end != line && *end == '\n') return ms;
  std::fprintf(stderr, "\rPyTorch, %s at %lld: %s", mode.c_str(), static_cast<long long>(size),
               line);
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace millrace::bench
