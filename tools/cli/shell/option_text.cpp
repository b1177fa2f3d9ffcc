#include "tools/cli/shell/option_text.h"

#include <CLI/CLI.hpp>  // the options

#include <iostream>  // the texts' way out

namespace millrace::cli {

void add_option_text(CLI::App& app, std::string (*keys)(), std::string (*layers)()) {
  app.add_flag_callback(
      "--man",
      [&app, keys, layers] {
        std::cout << man_page(read_option_tree(app, keys()), layers());
        throw CLI::Success();
      },
      "Print the man page, as roff: millrace --man | man -l -");
  app.add_option_function<std::string>(
         "--completion",
         [&app, keys](const std::string& shell) {
           std::cout << completion(read_option_tree(app, keys()), shell);
           throw CLI::Success();
         },
         "Print completion for a shell: source <(millrace --completion bash)")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

}  // namespace millrace::cli
