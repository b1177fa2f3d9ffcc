// Element-wise functions by name, for kernels on cores and GPUs.
#pragma once

namespace millrace::kernels {

enum class Function {
#define FUNCTION(enumerator, ...) enumerator,
#include "capture/program/kernels/functions-inl.h"
};

}  // namespace millrace::kernels
