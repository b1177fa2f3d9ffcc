// Without OpenCV nothing can be drawn.
#include <stdexcept>  // the refusal

#include "io/plot/plot.h"

namespace millrace::io {
namespace {

[[noreturn]] void refuse() {
  throw std::runtime_error("this build has no OpenCV: no PNG is written");
}

}  // namespace

void write_chart(const Chart&, const std::string&) {
  refuse();
}
void write_bars(const BarChart&, const std::string&) {
  refuse();
}
void write_strip(const std::string&, const std::vector<Panel>&, const std::string&) {
  refuse();
}

}  // namespace millrace::io
