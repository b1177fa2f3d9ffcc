#include "io/source/source.h"

#include "io/source/stream_health.h"  // of sources that never break off

namespace millrace::io {

std::shared_ptr<const StreamHealth> Source::health() const {
  return std::make_shared<StreamHealth>();
}

}  // namespace millrace::io
