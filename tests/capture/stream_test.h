// What every kind of Stream must do; each test program says which it has.
#pragma once

#include <c10/core/Device.h>  // where tensors are

#include <memory>  // streams

#include "capture/stream.h"

namespace millrace::capture {

/// A new one, the caller's; null where there is no device to have it on: tests are skipped.
std::unique_ptr<Stream> stream_to_test();
c10::Device device_to_test();

}  // namespace millrace::capture
