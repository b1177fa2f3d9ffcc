// profile_of(): measuring, which is still to come.
#include "tools/profile.h"

namespace millrace::tools {

engine::plan::Profile profile_of(const Config& config) {
  throw config.error("model", "plan can't measure a config yet: give it a profile");
}

}  // namespace millrace::tools
