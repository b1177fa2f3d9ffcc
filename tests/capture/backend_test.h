// What every kind of Backend must do; each test program says which it has.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "capture/backend.h"

namespace millrace::capture {

/// A new one, the caller's; null where there is no device to have it on: tests are skipped.
std::unique_ptr<Backend> backend_to_test();
c10::Device device_to_test();

}  // namespace millrace::capture
