#include "tools/cli/entry.h"

#include <algorithm>
#include <exception>
#include <iostream>

#include "io/source/source.h"
#include "io/source/uri.h"
#include "tools/app/config/config.h"

namespace millrace::cli {

int fail(ExitCode code, const std::string& what) {
  // Whatever a message quotes, a URI's password is never shown, nor is a terminal given orders.
  std::string line = io::redacted(what.substr(0, what.find('\n')));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  }
  std::cerr << "millrace: error: " << line << "\n";
  return code;
}

int run_program(const std::function<int()>& program) {
  try {
    return program();
  } catch (const app::ConfigError& error) {
    return fail(kBadUsage, error.what());
  } catch (const io::SourceError& error) {
    return fail(kNoSource, error.what());
  } catch (const std::exception& error) {
    return fail(kRunFailed, error.what());
  }
}

int parse_and_run(CLI::App& app, int argc, char** argv, const std::function<int()>& run) {
  try {
    app.parse(argc, argv);
    return run();
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return fail(kBadUsage, std::string(error.what()) + " (see millrace --help)");
  }
}

std::string name_list(const std::string& title,
                      const std::vector<std::pair<std::string, std::string>>& names) {
  std::size_t width = 0;
  for (const auto& [name, summary] : names) width = std::max(width, name.size());
  std::string text = title + ":";
  for (const auto& [name, summary] : names)
    text += "\n  " + name + std::string(width + 2 - name.size(), ' ') + summary;
  return text;
}

}  // namespace millrace::cli
