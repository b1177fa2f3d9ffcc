#include "tools/cli/commands/command.h"
#include "tools/cli/commands/python.h"

namespace millrace::cli {
namespace {

struct TensorboardArguments {
  std::string log;  ///< file written by output.log
  std::string folder;
};

int tensorboard(const TensorboardArguments& arguments) {
  run_python("tensorboard", "tensorboard", {arguments.log, arguments.folder});
}

void add_options(CLI::App& options, TensorboardArguments& arguments) {
  options.add_option("log", arguments.log, "Log from output.log")->required();
  options.add_option("folder", arguments.folder, "Folder to write to")->required();
}

}  // namespace

const Command kTensorboard = {90, "tensorboard",
                              "Convert a log from output.log into an event file for TensorBoard",
                              add<TensorboardArguments, add_options, tensorboard>};

}  // namespace millrace::cli
