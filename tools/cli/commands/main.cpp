// The `millrace` program: parses the command line, calls the command, maps failures to exit codes.
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <limits>
#include <map>

#include "io/files/whole_file.h"
#include "io/source/source.h"
#include "io/text/nearest_name.h"
#include "tools/app/run.h"
#include "tools/cli/commands/command.h"
#include "tools/cli/commands/signals.h"
#include "tools/cli/shell/option_text.h"

namespace millrace::cli {
namespace {

std::multimap<int, Command>& commands() {
  static std::multimap<int, Command> table;
  return table;
}

int fail(int code, const std::string& what) {
  // Hides passwords in URIs and keeps control characters from the terminal.
  constexpr std::size_t kLongest = 2000;  // library messages can be long
  std::string line = io::redacted(what.substr(0, what.find('\n'))).substr(0, kLongest);
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  std::cerr << "millrace: error: " << line << "\n";
  return code;
}

/// The first argument if it is no command: CLI11 would take the rest for the program's options.
std::string unknown_command(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  std::vector<std::string_view> names;
  for (const auto& [place, command] : commands()) {
    if (command.name == argv[1]) return "";
    names.push_back(command.name);
  }
  return "unknown command \"" + std::string(argv[1]) + "\"; the nearest is \"" +
         io::nearest_name(argv[1], names) + "\"";
}

/// "; the nearest is --frames" if an argument is no option of the command; else "".
std::string nearest_option(const CLI::App& program) {
  for (const CLI::App* const command : program.get_subcommands()) {
    std::vector<std::string> names;
    for (const CLI::Option* const option : command->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& word : command->remaining())
      if (word.starts_with("--"))
        return "; the nearest is " + io::nearest_name(word.substr(0, word.find('=')), names);
  }
  return "";
}

/// Options that print something and end the program.
void add_answers(CLI::App& program) {
  program.set_version_flag("--version", MILLRACE_VERSION);
  program.add_flag_callback(
      "--man",
      [&] {
        std::cout << man_page(program);
        throw CLI::Success();
      },
      "Print the man page, as roff: millrace --man | man -l -");
  program
      .add_option_function<std::string>(
          "--completion",
          [&](const std::string&) {
            std::cout << completion(program);
            throw CLI::Success();
          },
          "Print completion for a shell: source <(millrace --completion bash)")
      ->check(CLI::IsMember({"bash"}));
}

/// The arguments, with "~/" expanded where a shell leaves it: in quotes and in --option=~/file.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  for (std::string& word : words) {
    const std::size_t value = word.starts_with("--") ? word.find("=~/") + 1 : 0;  // npos + 1 is 0
    word.replace(value, std::string::npos, io::at_home(word.substr(value)));
  }
  return words;
}

int main_program(int argc, char** argv) {
  const std::string unknown = unknown_command(argc, argv);
  if (!unknown.empty()) return fail(kBadUsage, unknown);
  CLI::App program{"A neural network that learns from a live video stream, frame by frame."};
  program.require_subcommand(1);
  int code = kDone;
  for (const auto& [place, command] : commands()) {
    CLI::App* const options = program.add_subcommand(command.name, command.summary);
    options->callback([&code, run = command.add(*options)] { code = run(); });
  }
  add_answers(program);
  const std::vector<std::string> words = words_of(argc, argv);
  std::vector<const char*> all;
  for (const std::string& word : words) all.push_back(word.c_str());
  try {
    program.parse(argc, all.data());
    return code;
  } catch (const CLI::Success& success) {
    return program.exit(success);
  } catch (const CLI::ParseError& error) {
    return fail(kBadUsage, error.what() + nearest_option(program) + " (see millrace --help)");
  } catch (const std::exception& error) {
    return report_failure(error);
  }
}

/// Without standard streams, the first opened files would take their numbers, and get their output.
void open_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (fcntl(stream, F_GETFD) < 0) (void)open("/dev/null", O_RDWR);  // takes the lowest number
}

/// Handles exceptions that cannot be caught: in a library's constructor, a destructor, a starting
/// thread.
[[noreturn]] void end_in_a_line() {
  const char* what = "a thread could not be started; is a limit on processes or memory too low?";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
    what = "an exception of an unknown type";
  }
  _exit(fail(kRunFailed, what));
}

/// Ends the program if a limit on address space leaves too little for the libraries' constructors.
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

/// Ends the program if the limit on `what` is below what libraries need, which would crash or
/// complain line after line. Both are told in units of 2^`shift`, as the option sets them.
void require(decltype(RLIMIT_STACK) what, rlim_t needed, int shift, const char* text,
             const char* option) {
  rlimit limit{};
  if (getrlimit(what, &limit) != 0 || limit.rlim_cur >= needed) return;
  std::fprintf(stderr, "millrace: error: %s %lu%s: raise it to %lu\n", text,
               limit.rlim_cur >> shift, option, needed >> shift);
  _exit(kRunFailed);
}

/// Ends the program in a deleted folder, with a clear message: MKL's constructor would end it.
void require_folder() {
  char here[PATH_MAX];
  if (getcwd(here, sizeof here) || errno != ENOENT) return;
  std::fputs("millrace: error: the current folder was deleted: start in another\n", stderr);
  _exit(kBadUsage);
}

/// True under a profiler or another injected library, which writes its results as the program ends.
bool is_watched() {
#ifdef __SANITIZE_ADDRESS__  // looks for leaks then
  return true;
#endif
  return std::getenv("NVTX_INJECTION64_PATH") || std::getenv("CUDA_INJECTION64_PATH") ||
         std::getenv("LD_PRELOAD");
}

bool is_run(int argc, char** argv) {
  return argc > 1 && std::strcmp(argv[1], "run") == 0;
}

/// Runs before LibTorch's constructors, which take most of a second in which a signal may arrive.
void come_first(int argc, char** argv, char**) {
  open_standard_streams();
  std::set_terminate(end_in_a_line);
  require_address_space();
  require(RLIMIT_STACK, 1 << 20, 10, "a thread's stack may take", " KiB (ulimit -s)");
  require(RLIMIT_NOFILE, 32, 0, "open files may be", " (ulimit -n)");
  require_folder();
  if (is_run(argc, argv)) catch_signals();
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kFirst)(int, char**,
                                                                   char**) = come_first;

}  // namespace

Command::Command(int place, std::string name, std::string summary,
                 std::function<int()> (*add)(CLI::App& options))
    : name(std::move(name)), summary(std::move(summary)), add(add) {
  commands().emplace(place, *this);
}

void add_set(CLI::App& options, std::vector<std::string>& settings) {
  options
      .add_option(
          "--set", settings,
          "A key and its value, on top of the config; once for each: --set a.b=1 --set c.d=2")
      ->option_text("table.key=value")
      ->allow_extra_args(false);  // one KEY=VALUE per --set
}

void add_config(CLI::App& options, std::string& config, std::vector<std::string>& settings) {
  options.add_option("config", config, "Config file; none: every key at its default")
      ->check([](const std::string& path) { return path.empty() ? "a file's name is empty" : ""; });
  add_set(options, settings);
}

int report_failure(const std::exception& error) {
  return fail(app::exit_code_of(error), error.what());
}

}  // namespace millrace::cli

int main(int argc, char** argv) {
  using namespace millrace::cli;
  // Every step frees activations that the next one allocates again. By default the allocator
  // returns them to the system in between and page-faults them back: about 4 % of a step. While
  // recording, however, recorded blocks lie between temporaries, whose holes would stay in a heap.
  const bool records = is_run(argc, argv) || (argc > 1 && argv[1] == std::string_view("check"));
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_MMAP_THRESHOLD, records ? 64 << 10 : 32 << 20);
  int code = main_program(argc, argv);
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout);
  if (lost && code == kDone && !is_run(argc, argv))  // for a run, stdout has only a summary
    code = fail(kRunFailed, "standard output can't be written");
  if (!is_watched()) _exit(code);  // LibTorch's static destructors take a third of a second
  return code;
}
