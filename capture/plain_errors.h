#pragma once

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

#include "stages/torchscript.h"

namespace millrace::capture {

/// Runs `work` and turns LibTorch's exceptions (CUDA errors included) into std::runtime_error with
/// the first line of their text: the rest is a backtrace and advice for PyTorch users. For
/// TorchScript errors it is the last line, which follows the source location.
template <class Work>
decltype(auto) with_plain_errors(const Work& work) {
  const auto is_of_torchscript = [](const std::string& text) {
    return text.find("TorchScript interpreter") != std::string::npos;
  };
  try {
    return work();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    throw std::runtime_error(is_of_torchscript(text) ? stages::last_line(text)
                                                     : text.substr(0, text.find('\n')));
  } catch (const std::runtime_error& error) {
    if (!is_of_torchscript(error.what())) throw;
    throw std::runtime_error(stages::last_line(error.what()));
  }
}

}  // namespace millrace::capture
