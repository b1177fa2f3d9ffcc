// What is read off the option tree, and that the texts made of it hold it.
#include "tools/cli/shell/option_text.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>  // a small tree

namespace millrace::cli {
namespace {

constexpr const char* kKeys =
    "source.pace = 'auto'\n    live: at the stream's own rate\n    one of 'auto', 'live'\n"
    "source.width = 64\n    pixels\n    a whole number from 0 to 16384\n"
    "source.loop = false\n    start again\n    true or false\n"
    "pipeline.schedule = 'partime'\n    who does what\n    one of 'pb', '2bw' or a .csv file\n";

constexpr const char* kLayers =
    "model.layer = []\n    types:\n    conv: a convolution\n        out = 1: channels\n";

class OptionText : public testing::Test {
 protected:
  OptionText() {
    app_.set_version_flag("--version", "1.2.3");
    CLI::App* run = app_.add_subcommand("run", "Learn.");
    run->add_option("config", text_, "A file");
    run->add_option("--set", list_, "table.key=value")->allow_extra_args(false);
    run->add_option("--frames", number_, "How many")->check(CLI::Range(0, 9));
    run->add_flag("--quiet", flag_, "Say nothing");
    CLI::App* schedule = app_.add_subcommand("schedule", "Print it; don't run");
    schedule->add_option("name", text_, "Which")->required();
    schedule->add_option("-f,--format", text_, "How")->check(CLI::IsMember({"grid", "csv"}));
  }

  const OptionEntry& option(const OptionTree& tree, int command, const std::string& name) {
    for (const OptionEntry& entry : tree.commands[command].options) {
      if (entry.names.back() == name) return entry;
    }
    throw std::out_of_range(name);
  }

  CLI::App app_{"A program. It does."};
  std::string text_;
  std::vector<std::string> list_;
  int number_ = 0;
  bool flag_ = false;
};

TEST_F(OptionText, TreeHoldsCommandsOptionsAndChecks) {
  const OptionTree tree = read_option_tree(app_, kKeys);
  EXPECT_EQ(tree.version, "1.2.3");
  ASSERT_EQ(tree.commands.size(), 2u);
  EXPECT_TRUE(option(tree, 0, "config").positional);
  EXPECT_TRUE(option(tree, 0, "config").takes_path());
  EXPECT_TRUE(option(tree, 0, "--set").sets_key());
  EXPECT_EQ(option(tree, 0, "--frames").range, "0 to 9");
  EXPECT_EQ(option(tree, 0, "--quiet").value, "");
  EXPECT_EQ(option(tree, 1, "--format").names, (std::vector<std::string>{"-f", "--format"}));
  EXPECT_EQ(option(tree, 1, "--format").choices, (std::vector<std::string>{"grid", "csv"}));
  EXPECT_TRUE(option(tree, 1, "name").required);
}

TEST_F(OptionText, KeysBringTheirNamedValues) {
  const OptionTree tree = read_option_tree(app_, kKeys);
  ASSERT_EQ(tree.keys.size(), 4u);
  EXPECT_EQ(tree.keys[0].choices, (std::vector<std::string>{"auto", "live"}));
  EXPECT_EQ(tree.keys[1].range, "a whole number from 0 to 16384");
  EXPECT_TRUE(tree.keys[1].choices.empty());
  EXPECT_EQ(tree.keys[2].choices, (std::vector<std::string>{"true", "false"}));
  EXPECT_EQ(option(tree, 1, "name").choices, (std::vector<std::string>{"pb", "2bw"}));
}

TEST_F(OptionText, ManPageEscapesWhatRoffWouldTakeForItsOwn) {
  app_.add_subcommand("odd", ".starts with a dot, has a \\ and a-hyphen");
  const std::string page = man_page(read_option_tree(app_, kKeys), kLayers);
  EXPECT_NE(page.find("\\&.starts with a dot, has a \\e and a\\-hyphen"), page.npos);
  EXPECT_NE(page.find(".SH NAME\nmillrace \\- a program. It does\n"), page.npos);
  EXPECT_NE(page.find(".TP\n\\fBconv\\fR\na convolution\n.br\n\\fBout\\fR = 1: channels\n"), page.npos);
  EXPECT_NE(page.find("\\fB\\-\\-frames\\fR \\fIINT\\fR\nHow many\n(0 to 9)\n"), page.npos);
}

TEST_F(OptionText, QuotesOfAMeaningDoNotEndTheShellsString) {
  const OptionTree tree = read_option_tree(app_, kKeys);
  for (const char* shell : {"bash", "zsh", "fish"}) {
    EXPECT_NE(completion(tree, shell).find("schedule\tPrint it; don`t run"), std::string::npos)
        << shell;
  }
}

TEST_F(OptionText, OptionsPrintAndEndWithoutACommand) {
  app_.require_subcommand(1);
  add_option_text(
      app_, [] { return std::string(kKeys); }, [] { return std::string(kLayers); });
  testing::internal::CaptureStdout();
  EXPECT_THROW(app_.parse("--completion bash"), CLI::Success);
  EXPECT_THROW(app_.parse("--man"), CLI::Success);
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_NE(out.find("complete -o default -F _millrace millrace"), out.npos);
  EXPECT_NE(out.find(".TH MILLRACE 1"), out.npos);
  EXPECT_THROW(app_.parse("--completion tcsh"), CLI::ValidationError);
}

}  // namespace
}  // namespace millrace::cli
