#include "tools/cli/commands/command.h"

namespace millrace::cli {

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

}  // namespace millrace::cli
