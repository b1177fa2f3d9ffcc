#include "capture/program/kernel_choices.h"

#include <algorithm>  // find
#include <stdexcept>  // std::invalid_argument

namespace millrace::program {
namespace {

std::string text_of(const kernels::Layout& layout) {
  return std::to_string(layout.channels) + "x" + std::to_string(layout.height) + "x" +
         std::to_string(layout.width);
}

}  // namespace

std::string describe(const kernels::Convolution& c) {
  using kernels::Activation, kernels::Pass;
  const char* pass = c.pass == Pass::kForward        ? "forward "
                     : c.pass == Pass::kDataGradient ? "data-gradient "
                                                     : "weight-gradient ";
  std::string text = pass + text_of(c.input) + " -> " + text_of(c.output) + " k" +
                     std::to_string(c.kernel) + " s" + std::to_string(c.stride);
  if (c.activation == Activation::kRelu) text += " relu";
  if (c.activation == Activation::kSigmoid) text += " sigmoid";
  if (c.masked) text += " masked";
  return text;
}

std::string KernelChoices::choose(const kernels::Convolution& convolution) {
  const std::string key = describe(convolution);
  const std::lock_guard lock(mutex_);
  const auto found = chosen_.find(key);
  const std::vector<std::string> able = kernels::candidates(convolution);
  if (found != chosen_.end() && std::find(able.begin(), able.end(), found->second) != able.end())
    return found->second;
  return chosen_[key] = kernels::time_and_choose(convolution);
}

std::string KernelChoices::text() const {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (const auto& [convolution, implementation] : chosen_)
    all += (all.empty() ? "" : ";") + convolution + "=" + implementation;
  return all;
}

void KernelChoices::take(const std::string& text) {
  const std::lock_guard lock(mutex_);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    const std::size_t equals = text.find('=', begin);
    if (equals >= end)
      throw std::invalid_argument("no kernel choice: " + text.substr(begin, end - begin));
    chosen_.emplace(text.substr(begin, equals - begin), text.substr(equals + 1, end - equals - 1));
    begin = end + 1;
  }
}

}  // namespace millrace::program
