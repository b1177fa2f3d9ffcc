#include "engine/correction.h"

#include <stdexcept>  // std::invalid_argument

namespace millrace::engine {

const std::vector<std::string>& correction_names() {
  static const std::vector<std::string> names = {"none", "inverse-age"};
  return names;
}

double rate_factor(const std::string& correction, std::int64_t age) {
  if (correction == "none") return 1.0;
  if (correction == "inverse-age") return 1.0 / double(1 + age);
  throw std::invalid_argument("unknown correction \"" + correction + "\"");
}

}  // namespace millrace::engine
