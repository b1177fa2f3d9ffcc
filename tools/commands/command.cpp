#include "tools/commands/command.h"

#include <algorithm>

namespace millrace::tools {

const std::vector<const Command*>& command_table() {
  static const std::vector<const Command*> table = {
      &kRun,     &kCheck,    &kInspect, &kSchedule,    &kPlan,
      &kProfile, &kSimulate, &kCompare, &kTensorboard, &kBench};
  return table;
}

void add_set(CLI::App& command, std::vector<std::string>& settings) {
  command
      .add_option(
          "--set", settings,
          "A key and its value, on top of the config; once for each: --set a.b=1 --set c.d=2")
      ->option_text("table.key=value")
      ->allow_extra_args(false);
}

std::string name_list(const std::string& title,
                      const std::vector<std::pair<std::string, std::string>>& names) {
  std::size_t width = 0;
  for (const auto& [name, summary] : names) width = std::max(width, name.size());
  std::string text = title + ":";
  for (const auto& [name, summary] : names)
    text += "\n  " + name + std::string(width + 2 - name.size(), ' ') + summary;
  return text;
}

}  // namespace millrace::tools
