// Measures. Python (bench.py) chooses the arms, schedules turns and plots; it starts this program
// and asks it one JSON object per line.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "io/source/source.h"
#include "tools/app/config/config.h"
#include "tools/bench/measure.h"

namespace millrace::bench {
namespace {

std::map<std::string, Json (*)(const Json&)>& questions() {
  static std::map<std::string, Json (*)(const Json&)> all;
  return all;
}

/// {"answer"}, or {"error", "code"} with an exit code that users' scripts rely on.
Json answer(const std::string& line) {
  const auto failed = [](int code, const std::exception& error) {
    return Json{{"error", error.what()}, {"code", code}};
  };
  try {
    const Json question = Json::parse(line);
    const std::string name = question.at("question");
    if (!questions().contains(name))
      throw std::runtime_error("bench " + name + ": this build has no OpenCV and GStreamer");
    return {{"answer", questions().at(name)(question)}};
  } catch (const app::ConfigError& error) {
    return failed(2, error);
  } catch (const io::SourceError& error) {
    return failed(3, error);
  } catch (const std::exception& error) {
    return failed(1, error);
  }
}

}  // namespace

Question::Question(const char* name, Json (*answer)(const Json& question)) {
  questions()[name] = answer;
}

}  // namespace millrace::bench

int main() {
  std::FILE* const answers = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);  // separates library output from answers
  for (std::string line; std::getline(std::cin, line);) {
    std::fprintf(answers, "%s\n", millrace::bench::answer(line).dump().c_str());
    std::fflush(answers);
  }
}
