#include "tools/shell/option_text.h"

#include <CLI/CLI.hpp>  // the options

#include <iostream>  // the texts' way out

namespace millrace::tools {

void add_option_text(CLI::App& app, std::string (*keys)()) {
  app.add_flag_callback(
      "--man",
      [&app, keys] {
        std::cout << man_page(read_option_tree(app, keys()));
        throw CLI::Success();
      },
      "Print the man page, as roff: millrace --man | man -l -");
  app.add_option_function<std::string>(
         "--completion",
         [&app, keys](const std::string& shell) {
           const OptionTree tree = read_option_tree(app, keys());
           std::cout << (shell == "bash"  ? bash_completion(tree)
                         : shell == "zsh" ? zsh_completion(tree)
                                          : fish_completion(tree));
           throw CLI::Success();
         },
         "Print completion for a shell: source <(millrace --completion bash)")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

}  // namespace millrace::tools
