// Options as they are declared, parsed and printed.
#include "tools/cli/shell/option_text.h"

#include <gtest/gtest.h>

#include "tools/cli/entry.h"

namespace millrace::cli {
namespace {

const std::vector<app::KeyEntry> kKeys = {
    {"source.pace",
     "'auto'",
     "live: at the stream's own rate",
     "one of 'auto', 'live'",
     {"auto", "live"}},
    {"source.width", "64", "pixels", "a whole number from 0 to 16384", {}}};

class OptionText : public testing::Test {
 protected:
  OptionText() {
    CommandLine& run = program_.commands.emplace_back(CommandLine{"run", "Learn."});
    run.options.add("config", text_, "A file");
    run.options.add_set(settings_);
    run.options.add("--frames", number_, "How many", {.range = {{0, 9}}});
    run.options.add("--serve", page_, "Where");
    run.options.add("--quiet", flag_, "Say nothing");
    run.run = [] { return 7; };
    CommandLine& print =
        program_.commands.emplace_back(CommandLine{"print", "Print it; don't run"});
    print.options.add("name", text_, "Which",
                      {.required = true, .choices = {"pb"}, .or_if = [](const std::string& word) {
                         return word.ends_with(".csv");
                       }});
    print.options.add("-f,--format", text_, "How", {.choices = {"grid", "csv"}});
    print.run = [] { return 0; };
    CommandLine& rest = program_.commands.emplace_back(CommandLine{"rest", "Hand on"});
    rest.options.take_all(settings_);
    rest.run = [] { return 0; };
    program_.options.add("--answer",
                         Option::Answer([](const std::string& word) { return "to " + word; }), "",
                         {.choices = {"bash"}});
  }

  int call(std::vector<std::string> words) {
    std::vector<char*> argv = {const_cast<char*>("millrace")};
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = parse_and_run(program_, int(argv.size()), argv.data());
    out_ = testing::internal::GetCapturedStdout();
    error_ = testing::internal::GetCapturedStderr();
    return code;
  }

  Program program_{.meaning = "A program. It does.", .version = "1.2.3"};
  std::string text_, out_, error_;
  std::vector<std::string> settings_;
  std::optional<std::string> page_;
  int number_ = 0;
  bool flag_ = false;
};

TEST_F(OptionText, ValuesReachTheirVariables) {
  EXPECT_EQ(call({"run", "a.toml", "--set", "a=1", "--set", "b=2", "--frames", "3", "--quiet"}), 7);
  EXPECT_EQ(text_, "a.toml");
  EXPECT_EQ(settings_, (std::vector<std::string>{"a=1", "b=2"}));
  EXPECT_EQ(number_, 3);
  EXPECT_TRUE(flag_);
  EXPECT_FALSE(page_);
  EXPECT_EQ(call({"run", "--serve"}), 7);
  EXPECT_EQ(page_, "");
  EXPECT_EQ(call({"run", "--serve", ":80"}), 7);
  EXPECT_EQ(page_, ":80");
  EXPECT_EQ(call({"rest", "x", "--help"}), 0);
  EXPECT_EQ(settings_, (std::vector<std::string>{"x", "--help"}));
}

TEST_F(OptionText, BadUsageIsOneLine) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"rnu"},
                                                {"run", "--frames", "10"},
                                                {"run", "--set", "a", "b", "c"},
                                                {"print"},
                                                {"print", "pc"},
                                                {"--answer", "tcsh"}}) {
    EXPECT_EQ(call(words), kBadUsage);
    EXPECT_TRUE(error_.starts_with("millrace: error: "));
    EXPECT_EQ(error_.find('\n'), error_.size() - 1);
  }
}

TEST_F(OptionText, WordsBesideTheNamedOnesAreTaken) {
  EXPECT_EQ(call({"print", "pb"}), 0);
  EXPECT_EQ(call({"print", "mine.csv"}), 0);
}

TEST_F(OptionText, AnAnswerNeedsNoCommand) {
  EXPECT_EQ(call({"--answer", "bash"}), 0);
  EXPECT_EQ(out_, "to bash");
}

TEST_F(OptionText, ManPageEscapesWhatRoffWouldTakeForItsOwn) {
  program_.commands.emplace_back(CommandLine{"odd", ".starts with a dot, has a \\ and a-hyphen"});
  const std::string page =
      man_page(program_, kKeys, {{"conv", "a convolution", {{"out", "channels", "1"}}, nullptr}});
  EXPECT_NE(page.find("\\&.starts with a dot, has a \\e and a\\-hyphen"), page.npos);
  EXPECT_NE(page.find(".SH NAME\nmillrace \\- a program. It does\n"), page.npos);
  EXPECT_NE(page.find(".TP\n\\fBconv\\fR\na convolution\n.br\n\\fBout\\fR = 1: channels\n"),
            page.npos);
  EXPECT_NE(page.find("\\fB\\-\\-frames\\fR \\fIINT\\fR\nHow many\n(0 to 9)\n"), page.npos);
}

TEST_F(OptionText, QuotesOfAMeaningDoNotEndTheShellsString) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    EXPECT_NE(completion(program_, kKeys, shell).find("print\tPrint it; don`t run"),
              std::string::npos)
        << shell;
  }
}

}  // namespace
}  // namespace millrace::cli
