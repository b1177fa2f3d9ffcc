#include "tools/cli/shell/option_text.h"

#include <gtest/gtest.h>

namespace millrace::cli {
namespace {

const std::vector<app::KeyEntry> kKeys = {
    {"source.width", "64", "pixels", "a whole number from 0 to 16384", {}}};

TEST(OptionText, ManPageEscapesWhatRoffWouldTakeForItsOwn) {
  CLI::App program{"A program. It does."};
  program.set_version_flag("--version", "1.2.3");
  int number = 0;
  CLI::App* const odd = program.add_subcommand("odd", ".starts with a dot, has a \\ and a-hyphen");
  odd->add_option("--frames", number, "How many")->check(CLI::Range(0, 9));
  const std::string page = man_page(
      program, kKeys,
      {{"conv", "a convolution", {{"out", "channels", stages::LayerKey::Whole{}, 1}}, nullptr}});
  for (const char* const part :
       {"\\&.starts with a dot, has a \\e and a\\-hyphen", "\"millrace 1.2.3\"",
        ".SH NAME\nmillrace \\- a program. It does\n",
        ".TP\n\\fBconv\\fR\na convolution\n.br\n\\fBout\\fR = 1: channels\n",
        "\\fB\\-\\-frames\\fR \\fIINT\\fR\nHow many\n(INT in [0 \\- 9])\n"})
    EXPECT_NE(page.find(part), page.npos) << part;
}

TEST(OptionText, QuotesOfAMeaningDoNotEndTheShellsString) {
  CLI::App program;
  program.add_subcommand("print", "Print it; don't run");
  EXPECT_NE(completion(program, kKeys).find("print\tPrint it; don`t run"), std::string::npos);
}

}  // namespace
}  // namespace millrace::cli
