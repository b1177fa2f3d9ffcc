#include "tools/cli/entry.h"

#include <exception>
#include <iostream>

#include "io/source/source.h"
#include "tools/app/config/config.h"

namespace millrace::cli {

int fail(ExitCode code, const std::string& what) {
  // Never shows a URI's password, never sends control characters to a terminal.
  constexpr std::size_t kLongest = 2000;  // a library may tell all it knows
  std::string line = io::redacted(what.substr(0, what.find('\n'))).substr(0, kLongest);
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

}  // namespace millrace::cli
