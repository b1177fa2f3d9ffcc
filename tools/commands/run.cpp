// `millrace run`: a run at a terminal, under systemd or in a script.
#include <cstdio>
#include <iostream>
#include <stdexcept>

#include "tools/config/commands.h"
#include "tools/commands/progress.h"
#include "tools/run/run.h"
#include "tools/commands/signals.h"
#include "tools/commands/watchdog.h"

namespace millrace::tools {
namespace {

/// What people and systemd see of a run while it learns, and what signals ask of it.
class Attendant {
 public:
  Attendant(Run& run, bool quiet) : run_(run), quiet_(quiet), progress_(quiet) {
    if (!quiet && !run.remark().empty()) say("source: " + run.remark());
    if (!quiet && !run.page().empty()) say("page: " + run.page());
    if (!quiet && !run.video().empty()) say("video: " + run.video());
    run.on_event([this](const std::string& line) { say(line); });
    run.on_tick([this] { look(); });
    watchdog_.ready();
  }

  /// The run has learned what there was.
  void finish() {
    if (!stopping_) watchdog_.stopping();
    progress_.finish();
  }

 private:
  void say(const std::string& line) {
    progress_.finish();
    std::fprintf(stderr, "%s\n", line.c_str());
  }

  void look() {
    if (asked_to_stop() && !stopping_) {
      stopping_ = true;
      watchdog_.stopping();
      run_.stop();
      if (!quiet_) say("stopping: draining the pipeline");
    }
    if (asked_to_reload()) say("config: " + run_.reload());
    const std::int64_t trained = run_.trained();
    if (watchdog_.due(trained)) watchdog_.trained(trained, run_.status());
    if (run_.paused() && !stopping_) watchdog_.paused("paused on demand");
    if (progress_.due()) progress_.show(run_.status());
  }

  Run& run_;
  const bool quiet_;
  Progress progress_;
  Watchdog watchdog_;
  bool stopping_ = false;
};

std::string quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

int run_command(const RunArguments& arguments) {
  std::vector<std::string> settings = arguments.settings;
  if (!arguments.report.empty()) settings.push_back("output.report=" + quoted(arguments.report));
  const auto read = [&] { return load_config(arguments.config, settings); };
  const Config config = read();
  Run run(config, {.trace = arguments.trace,
                   .serve = arguments.serve,
                   .serve_at = arguments.serve_at,
                   .token = arguments.token,
                   .read_again = read});
  catch_signals();  // from here on there is something to save
  std::string failure;
  const auto failed = [&](const std::string& what) {
    failure += (failure.empty() ? "" : "; ") + what;
  };
  Attendant attendant(run, arguments.quiet);
  try {
    run.learn(arguments.frames);
  } catch (const std::exception& error) {
    failed(error.what());
  }
  attendant.finish();
  for (const std::string& what : run.save()) failed(what);
  if (!arguments.quiet)
    (config.output.log == "-" ? std::cerr : std::cout) << run.summary() << std::flush;
  if (!run.source_error().empty()) failed(run.source_error());
  if (!failure.empty()) throw std::runtime_error(failure);
  return kDone;
}

}  // namespace millrace::tools
