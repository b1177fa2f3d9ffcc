#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <utility>

#include "engine/pipeline/exchange.h"
#include "io/files/descriptor.h"
#include "io/source/source.h"
#include "tools/app/run.h"
#include "tools/cli/commands/command.h"
#include "tools/cli/commands/signals.h"
#include "tools/cli/commands/watchdog.h"
#include "tools/page/gate.h"

namespace millrace::cli {
namespace {

struct RunArguments {
  std::string config;
  std::vector<std::string> settings;
  std::int64_t frames = 0;  ///< 0: until the source ends
  std::string report;
  app::RunOptions options;
  std::string token_file;  ///< file with the token; "": none
  bool quiet = false, verbose = false;
};

/// Reports a run's progress to users, on stderr, and to systemd, and handles signals. One thread.
class Attendant {
 public:
  Attendant(app::Run& run, bool quiet, bool verbose) : run_(run), quiet_(quiet), verbose_(verbose) {
    if (!quiet) {
      say(run.watching());
      if (!run.page().empty()) say("page: " + run.page());
      if (!run.video().empty()) say("video: " + run.video());
      for (const std::string& remark : run.remarks(verbose)) say(remark);
    }
    run.on_event([this](const std::string& line) { say(line); });
    run.on_tick([this] { look(); });
    watchdog_.ready();
  }

  void finish() {
    if (!stopping_) watchdog_.stopping();
    end_line();
  }

 private:
  /// Whether a line can be written at once: a reader that has stopped must not halt the run.
  static bool is_read() {
    pollfd out{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    return poll(&out, 1, 0) > 0;
  }
  void say(const std::string& line) {
    if (!is_read()) return;
    end_line();
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  void end_line() {
    if (open_ && is_read()) std::fputc('\n', stderr);
    open_ = false;
  }
  /// Progress is rewritten in place on a terminal; otherwise a line every few seconds.
  void show(const std::string& progress) {
    next_ = Clock::now() + std::chrono::milliseconds(terminal_ ? 200 : 5000);
    if (!is_read()) return;
    if (terminal_) {
      winsize size{};
      const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
      std::fprintf(stderr, "\r%.*s\x1b[K", known ? size.ws_col - 1 : INT_MAX, progress.c_str());
      open_ = true;
    } else {
      std::fprintf(stderr, "%s\n", progress.c_str());
    }
    std::fflush(stderr);
  }

  void look() {
    if (asked_to_stop() && !stopping_) {
      stopping_ = true;
      watchdog_.stopping();
      run_.stop();
      if (!quiet_) say("stopping: draining the pipeline");
    }
    if (asked_to_reload()) say("config: " + run_.reload());
    const bool paused = run_.paused() && !stopping_;
    watchdog_.look(run_.predicted(), paused,
                   [&] { return paused ? "paused on demand" : run_.status(); });
    if (!quiet_ && Clock::now() >= next_) show(run_.status(verbose_));
  }

  using Clock = std::chrono::steady_clock;

  app::Run& run_;
  const bool quiet_, verbose_;
  const bool terminal_ = isatty(STDERR_FILENO);
  bool open_ = false;         ///< a line of progress on a terminal
  Clock::time_point next_{};  ///< of progress
  Watchdog watchdog_;
  bool stopping_ = false;
};

/// The token in `path`, without line ends. Waits for a pipe for a while. Throws ConfigError.
std::string token_in(const std::string& path) {
  constexpr std::size_t kMost = 4096;
  constexpr int kPatienceMs = 5000;
  const io::Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string token(kMost + 1, '\0');
  pollfd input{.fd = file.get(), .events = POLLIN};
  ssize_t size = file ? 0 : -1;
  int ready = 0;
  while (file && (ready = poll(&input, 1, kPatienceMs)) < 0 && errno == EINTR) continue;
  if (ready > 0) size = read(file.get(), token.data(), token.size());
  if (size < 0)
    throw app::ConfigError("--token-file: " + path + ": cannot be read: " + std::strerror(errno));
  if (std::size_t(size) > kMost)
    throw app::ConfigError("--token-file: " + path + ": holds more than 4096 bytes");
  token.resize(std::size_t(size));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty()) throw app::ConfigError("--token-file: " + path + ": holds no token");
  try {
    page::check_token(token);
  } catch (const std::invalid_argument& error) {
    throw app::ConfigError("--token-file: " + path + ": " + error.what());
  }
  return token;
}

/// Returns a function that reads the arguments' config anew at each call. Pipes are read once.
std::function<app::Config()> config_reader(const RunArguments& arguments) {
  std::vector<std::string> settings = arguments.settings;
  if (!arguments.report.empty())
    settings.push_back(app::text_setting("output.report", arguments.report));
  const std::string file = arguments.config;
  const bool config = !file.empty() && !app::names_a_source(file);
  std::error_code ignored;
  const bool once = config && std::filesystem::exists(file, ignored) &&
                    !std::filesystem::is_regular_file(file, ignored);
  return [=, again = false]() mutable {
    if (again && once) throw app::ConfigError(file + ": is a pipe, which can be read only once");
    app::Config read = app::load_argument(file, settings);
    if (again && read.empty_file) throw app::ConfigError(file + ": is empty");
    again = true;
    return read;
  };
}

/// Whether a stop was requested while ranks wait for others; prints a line once if that is long.
app::Waits waits(bool quiet) {
  using Clock = std::chrono::steady_clock;
  return
      [quiet, last = std::string(), since = Clock::time_point()](const std::string& whom) mutable {
        if (whom != std::exchange(last, whom)) since = Clock::now();
        if (!quiet && Clock::now() > since + std::chrono::seconds(10)) {
          std::fprintf(stderr, "waiting for %s\n", whom.c_str());
          quiet = true;
        }
        return asked_to_stop();
      };
}

/// Runs everything, or with `ranks` the part that has the source.
int learn(const RunArguments& arguments, engine::Exchange* ranks) {
  const auto read = config_reader(arguments);
  const app::Config config = read();
  app::RunOptions options = arguments.options;
  if (!arguments.token_file.empty()) options.token = token_in(arguments.token_file);
  options.read_again = read;
  options.ranks = ranks;
  options.waits = waits(arguments.quiet);
  app::Run run(config, options);
  if (!ranks) catch_signals();  // from here on there are weights to save
  std::string failure;
  const auto failed = [&](const std::string& what) {
    failure += (failure.empty() ? "" : "; ") + what;
  };
  Attendant attendant(run, arguments.quiet, arguments.verbose);
  try {
    run.learn(arguments.frames);
  } catch (const app::Wedged& error) {
    std::fprintf(stderr, "millrace: error: %s\n", error.what());
    std::_Exit(kRunFailed);  // without waiting for the stage
  } catch (const std::exception& error) {
    failed(error.what());
  } catch (...) {  // a plug-in's exception
    failed("an exception of an unknown type");
  }
  attendant.finish();
  for (const std::string& what : run.save()) failed(what);
  if (!arguments.quiet) (run.uses_stdout() ? std::cerr : std::cout) << run.summary() << std::flush;
  if (!run.source_error().empty()) failed(run.source_error());
  if (!failure.empty()) throw std::runtime_error(failure);
  return kDone;
}

int run(const RunArguments& arguments) {
  catch_signals();
  const std::unique_ptr<engine::Exchange> ranks = app::launched_ranks(waits(arguments.quiet));
  if (!ranks) {
    leave_at_signals();  // ranks stay, since others would wait for them
    if (asked_to_stop()) return kDone;
    try {
      return learn(arguments, nullptr);
    } catch (const io::SourceError& error) {
      const bool path =
          app::names_a_source(arguments.config) && arguments.config.find(':') == std::string::npos;
      throw io::SourceError(error.what() + std::string(path ? " (a config is called *.toml)" : ""));
    }
  }
  if (ranks->rank() != 0) return app::follow(*ranks, config_reader(arguments), asked_to_stop);
  try {
    return learn(arguments, ranks.get());
  } catch (const app::Stopped& stopped) {
    std::fprintf(stderr, "%s\n", stopped.what());
    app::refuse_ranks(*ranks, kDone);
    ranks->abandon();  // MPI would wait for them
    return kDone;
  } catch (const std::exception& error) {
    // Printed before MPI ends: a launcher may kill this rank once others have ended.
    const int code = report_failure(error);
    app::refuse_ranks(*ranks, code);
    return code;
  }
}

void add_options(CLI::App& options, RunArguments& arguments) {
  add_config(options, arguments.config, arguments.settings);
  add_number(options, "--frames", arguments.frames,
             "Frames to train, in whole minibatches; 0: until the source ends", std::int64_t{0},
             kMostFrames);
  options.add_option("--report", arguments.report, "Where to write the report, JSON");
  CLI::Option* const trace =
      options.add_option("--trace", arguments.options.trace,
                         "Where to write what each worker did and when, for Chrome or Perfetto: "
                         "the last 1000000 actions and waits");
  options
      .add_flag("--trace-operators", arguments.options.trace_operators,
                "Trace each operator of the step programs as well, with its name and time")
      ->needs(trace);
  CLI::Option* const serve = options.add_option_function<std::string>(
      "--serve",
      [&](const std::string& at) {
        arguments.options.serve = true;
        arguments.options.serve_at = at;
      },
      "Serve a page to watch the run, at ADDR:PORT (default 127.0.0.1:8080); an address other "
      "than loopback needs --token");
  serve->expected(0, 1);
  CLI::Option* const token =
      options.add_option("--token", arguments.options.token, "Token that viewers must give")
          ->needs(serve);
  options
      .add_option("--token-file", arguments.token_file,
                  "A file that holds the token, which keeps it out of the list of processes")
      ->excludes(token)
      ->needs(serve);
  CLI::Option* const quiet =
      options.add_flag("--quiet", arguments.quiet, "No progress and no summary");
  options
      .add_flag("-v,--verbose", arguments.verbose,
                "Also how it learns: times of the stages, latency, loss, correction, replay")
      ->excludes(quiet);
}

}  // namespace

const Command kRun = {10, "run",
                      "Learn from the source until it ends, --frames are trained or SIGINT comes",
                      add<RunArguments, add_options, run>};

}  // namespace millrace::cli
