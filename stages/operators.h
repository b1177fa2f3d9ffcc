// Operators of the library millrace: recorders see a call as a whole.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <type_traits>

namespace millrace::stages {

/// `function` as an operator below autograd, on any device. Define it at namespace scope.
template <auto function>
class Operator {
 public:
  /// \param schema "quantize(Tensor values) -> (Tensor, Tensor)".
  explicit Operator(const std::string& schema)
      : library_(torch::Library::FRAGMENT, "millrace", std::nullopt, __FILE__, __LINE__),
        name_("millrace::" + schema.substr(0, schema.find('('))) {
    library_.def(schema.c_str(),
                 torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, function));
  }
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) const {
    static const auto found = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow(name_.c_str(), "")
                                  .template typed<std::remove_pointer_t<decltype(function)>>();
    return found.call(std::forward<Arguments>(arguments)...);
  }

 private:
  torch::Library library_;
  const std::string name_;
};

}  // namespace millrace::stages
