// Serves an invented run, to develop and test the page with.
//   page_play [--serve ADDR:PORT] [--token TOKEN] [--size N] [--stages N] [--fps F] [--classes N]
// Prints its URL, then takes a command a line from stdin until that ends.
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>

#include "tests/page/invented_run.h"
#include "tools/page/server.h"

namespace millrace::page {
namespace {

struct Usage {
  std::string serve = "127.0.0.1:0";
  std::string token;
  InventedOptions run;
};

Usage read(int argc, char** argv) {
  Usage usage;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--serve") {
      usage.serve = value;
    } else if (name == "--token") {
      usage.token = value;
    } else if (name == "--size") {
      usage.run.size = std::stoi(value);
    } else if (name == "--stages") {
      usage.run.stages = std::stoi(value);
    } else if (name == "--fps") {
      usage.run.fps = std::stod(value);
    } else if (name == "--classes") {
      usage.run.classes = std::stoi(value);
    } else {
      throw std::invalid_argument("unknown option " + name);
    }
  }
  return usage;
}

void play(const Usage& usage) {
  InventedRun run(usage.run);
  WebServer server(web_options(usage.serve, usage.token), {.look = [&run] { return run.look(); },
                                                           .pictures = &run.board(),
                                                           .controls = &run.controls()});
  std::printf("%s\n", server.url().c_str());
  std::fflush(stdout);
  for (std::string command; std::getline(std::cin, command);) {
    if (command == "break") run.set_connected(false);
    if (command == "mend") run.set_connected(true);
    // Every command is answered: {frames trained, pictures shown, viewers}.
    std::printf("%lld %lld %d\n", static_cast<long long>(run.look().frames.trained),
                static_cast<long long>(run.board().shown()), server.viewers());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace millrace::page

int main(int argc, char** argv) {
  try {
    millrace::page::play(millrace::page::read(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "page_play: %s\n", error.what());
    return 1;
  }
}
