// LibTorch's errors as errors that a user can read.
#pragma once

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

namespace millrace::capture {

/// Does `work`. What LibTorch throws, CUDA's errors among it, becomes a std::runtime_error with the
/// first line of its text: the rest is advice for PyTorch's users and a backtrace.
template <class Work>
decltype(auto) with_plain_errors(const Work& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    throw std::runtime_error(text.substr(0, text.find('\n')));
  }
}

}  // namespace millrace::capture
