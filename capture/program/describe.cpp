#include "capture/program/operations/convolution.h"

namespace millrace::program {

std::string text_of(const kernels::Layout& layout) {
  return std::to_string(layout.channels) + "x" + std::to_string(layout.height) + "x" +
         std::to_string(layout.width);
}

std::string describe(const kernels::Convolution& c) {
  static constexpr const char* passes[] = {"forward ", "data-gradient ", "weight-gradient ",
                                           "gradients "};
  static constexpr const char* activations[] = {"", " relu", " sigmoid"};
  const auto [rows, columns] = kernels::window_of(c);
  const auto sides = [](int of_rows, int of_columns) {
    return std::to_string(of_rows) +
           (of_rows == of_columns ? "" : "x" + std::to_string(of_columns));
  };
  std::string text = passes[int(c.pass)] + text_of(c.input) + " -> " + text_of(c.output) + " k" +
                     sides(rows.count, columns.count) + " s" + sides(rows.stride, columns.stride);
  if (c.window)
    text +=
        " p" + sides(rows.padding, columns.padding) + " d" + sides(rows.dilation, columns.dilation);
  if (c.groups > 1) text += " of " + std::to_string(c.groups) + " groups";
  return text + activations[int(c.activation)] + (c.masked ? " masked" : "");
}

}  // namespace millrace::program
