// The `millrace` program: reads the command line, calls the command, maps failures to exit codes.
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>

#include "tools/app/config/config.h"
#include "tools/cli/commands/command.h"
#include "tools/cli/commands/signals.h"
#include "tools/cli/shell/option_text.h"

namespace millrace::cli {

std::vector<Command>& command_table() {
  static std::vector<Command> table;
  return table;
}

Command::Command(int place, std::string name, std::string summary,
                 std::function<int()> (*add)(Options& options))
    : place(place), name(std::move(name)), summary(std::move(summary)), add(add) {
  auto& table = command_table();
  const auto next = std::find_if(table.begin(), table.end(),
                                 [&](const Command& other) { return other.place > place; });
  table.insert(next, *this);
}

namespace {

int main_program(int argc, char** argv) {
  Program program{
      .meaning = "A neural network that learns from a live video stream, frame by frame.",
      .version = MILLRACE_VERSION};
  for (const Command& command : command_table()) {
    CommandLine& line = program.commands.emplace_back(CommandLine{command.name, command.summary});
    line.run = command.add(line.options);
  }
  Options& own = program.options;
  own.add("--version", Option::Value(), "Display program version information and exit");
  own.add("--man", Option::Answer([&](const std::string&) {
            return man_page(program, app::key_entries(), stages::layer_types());
          }),
          "Print the man page, as roff: millrace --man | man -l -");
  own.add("--completion", Option::Answer([&](const std::string& shell) {
            return completion(program, app::key_entries(), shell);
          }),
          "Print completion for a shell: source <(millrace --completion bash)",
          {.choices = {"bash", "zsh", "fish"}});
  return parse_and_run(program, argc, argv);
}

/// Without standard streams the first files that are opened would be them, and would get progress
/// and errors between their bytes.
void open_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) < 0) (void)open("/dev/null", O_RDWR);  // takes the lowest number
  }
}

/// Where nobody can catch it: a library's constructor, a destructor, a thread that does not start.
[[noreturn]] void end_in_a_line() {
  const char* what = "a thread could not be started; is a limit on processes or memory too low?";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
    what = "an exception of an unknown type";
  }
  std::fprintf(stderr, "millrace: error: %s\n", what);
  _exit(kRunFailed);
}

/// Ends if a limit on address space leaves too little beside the libraries, whose constructors
/// would crash.
void require_address_space() {
  constexpr rlim_t kNeeded = 256 << 20;
  rlimit limit{};
  unsigned long pages = 0;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if (FILE* const file = std::fopen("/proc/self/statm", "r")) {
    (void)!std::fscanf(file, "%lu", &pages);
    std::fclose(file);
  }
  const rlim_t taken = rlim_t(pages) * rlim_t(sysconf(_SC_PAGESIZE));
  if (taken + kNeeded <= limit.rlim_cur) return;
  std::fprintf(stderr,
               "millrace: error: the libraries take %lu MiB of address space, the limit is %lu "
               "(ulimit -v): raise it to %lu\n",
               taken >> 20, limit.rlim_cur >> 20, (taken + 4 * kNeeded) >> 20);
  _exit(kRunFailed);
}

/// Called before LibTorch's constructors, which take most of a second: a signal may come meanwhile.
void come_first(int argc, char** argv, char**) {
  open_standard_streams();
  std::set_terminate(end_in_a_line);
  require_address_space();
  if (argc > 1 && std::strcmp(argv[1], "run") == 0) catch_signals();
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kFirst)(int, char**,
                                                                   char**) = come_first;

}  // namespace
}  // namespace millrace::cli

int main(int argc, char** argv) {
  using namespace millrace::cli;
  // Every step frees activations that the next one allocates again. By default the allocator
  // returns them to the system in between and gets them back page by page: some 4 % of a step.
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  return run_program([&] { return main_program(argc, argv); });
}
