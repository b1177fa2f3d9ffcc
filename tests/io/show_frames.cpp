// Writes the frames of a URI to stdout, each as a PPM, and what is said about them to stderr. 3: it
// cannot be opened, 1: it broke off.
#include <cstdio>

#include "io/source/source.h"

int main(int, char** arguments) {
  using namespace millrace::io;
  int failed = 3;
  try {
    const std::unique_ptr<Source> source = open_source({.uri = arguments[1]});
    failed = 1;
    std::fprintf(stderr, "%s\n", source->info().kind.c_str());
    Frame frame;
    for (ReadStatus status{}; status != ReadStatus::end;) {
      status = source->read(frame, std::chrono::milliseconds(100));
      for (const std::string& note : source->health()->take_notes())
        std::fprintf(stderr, "%s\n", note.c_str());
      if (status != ReadStatus::frame) continue;
      std::printf("P6\n%d %d\n255\n", frame.width, frame.height);
      std::fwrite(frame.pixels.data(), 1, frame.pixels.size(), stdout);
    }
  } catch (const SourceError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return failed;
  }
}
