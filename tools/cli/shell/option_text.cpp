#include "tools/cli/shell/option_text.h"

#include <completion_scripts.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "stages/model_spec.h"
#include "tools/app/config/config.h"

namespace millrace::cli {
namespace {

/// "-f" and "--format"; for a positional argument, its one name.
std::vector<std::string> names_of(const CLI::Option& option) {
  return CLI::detail::split(option.get_name(false, true), ',');
}

/// Allowed values; empty: any.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();  // such as "TEXT:{grid,csv}"
  const std::size_t open = type.find('{');
  if (open == type.npos) return {};
  return CLI::detail::split(type.substr(open + 1, type.rfind('}') - open - 1), ',');
}

/// A line "COMMAND <tab> BEFORE <tab> WORD <tab> MEANING": after COMMAND ("*": any), WORD may
/// follow BEFORE, an option that takes a value, or nothing. WORD "<file>" stands for every file, an
/// empty WORD for a value that can't be guessed.
void write_line(std::ostream& out, const std::string& command, const std::string& before,
                const std::string& word, std::string meaning = "") {
  std::replace(meaning.begin(), meaning.end(), '\'', '`');  // the table is in single quotes
  out << command << '\t' << before << '\t' << word << '\t' << meaning << '\n';
}

void write_options(std::ostream& out, const std::string& command, const CLI::App& app) {
  for (const CLI::Option* const option : app.get_options()) {
    const bool positional = option->get_positional();
    for (const std::string& name : names_of(*option)) {
      const std::string before = positional ? "" : name;
      if (!positional) write_line(out, command, "", name, option->get_description());
      if (option->get_items_expected_max() == 0 || name == "--set") continue;
      for (const std::string& choice : choices_of(*option))
        write_line(out, command, before, choice);
      if (option->get_type_name() == "TEXT") write_line(out, command, before, "<file>");
      if (!positional) write_line(out, command, before, "");
    }
  }
}

std::string table(const CLI::App& program) {
  std::ostringstream out;
  const auto commands = program.get_subcommands({});
  write_options(out, "", program);
  for (const CLI::App* const command : commands)
    write_line(out, "", "", command->get_name(), command->get_description());
  for (const CLI::App* const command : commands) write_options(out, command->get_name(), *command);
  for (const app::KeyEntry& key : app::key_entries()) {
    write_line(out, "*", "--set", key.path + "=", key.meaning);
    for (const std::string& choice : key.choices)
      write_line(out, "*", key.path, key.path + "=" + choice);
  }
  return out.str();
}

/// Text that roff prints literally: no escapes, no requests, and hyphens that can be copied.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if ((c == '.' || c == '\'') && out.empty())
      out += std::string("\\&") + c;
    else
      out += c;
  return out;
}

/// Removes the capital and the full stop, for whatis.
std::string as_clause(std::string text) {
  if (!text.empty()) text[0] = char(std::tolower(static_cast<unsigned char>(text[0])));
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string bold(const std::string& text) {
  return "\\fB" + plain(text) + "\\fR";
}

std::string italic(const std::string& text) {
  return "\\fI" + plain(text) + "\\fR";
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + bold(name);
  return out;
}

void write_option(std::ostream& out, const CLI::Option& option) {
  const bool positional = option.get_positional();
  const std::string type = option.get_type_name();  // such as "INT:INT in [0 - 9]"
  const std::size_t colon = type.find(':');
  out << ".TP\n" << (positional ? italic(option.get_name(true)) : list(names_of(option)));
  if (!type.empty() && !positional) out << " " << italic(type.substr(0, colon));
  out << "\n" << plain(option.get_description()) << "\n";
  const std::vector<std::string> choices = choices_of(option);
  if (!choices.empty())
    out << "(" << list(choices) << ")\n";
  else if (colon != type.npos)
    out << "(" << plain(type.substr(colon + 1)) << ")\n";
}

void write_synopsis(std::ostream& out, const CLI::App& command) {
  out << ".B millrace " << command.get_name() << "\n";
  for (const CLI::Option* const option : command.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = italic(option->get_name(true));
    out << (option->get_required() ? name : "[" + name + "]") << "\n";
  }
  out << "[" << italic("option") << "]...\n.br\n";
}

void write_layers(std::ostream& out) {
  out << ".SH LAYERS\nWith model.preset \\(dqlayers\\(dq the network is a list of "
         "\\fB[[model.layer]]\\fR tables. Each has a \\fBtype\\fR and its keys:\n";
  for (const stages::LayerType& type : stages::layer_types()) {
    out << ".TP\n" << bold(type.name) << "\n" << plain(type.summary) << "\n";
    for (const stages::LayerKey& key : type.keys)
      out << ".br\n"
          << bold(key.name) << plain(" = " + key.fallback_text() + ": " + key.meaning) << "\n";
  }
}

constexpr const char* kAfterOptions = R"(.SH EXIT STATUS
.TP
.B 0
Done. Ctrl\-C and SIGTERM drain the pipeline and save everything; a later one ends at once.
.TP
.B 1
The run failed.
.TP
.B 2
Bad usage, config or weights, reported before any device or source is opened.
.TP
.B 3
The source cannot be opened.
.SH EXAMPLES
.TP
.B millrace run
Learn from the sample video with every key at its default.
.TP
.B millrace run my.toml \-\-set optimizer.lr=0.003 \-\-frames 1000 \-\-report report.json
Your own config with one key changed.
.TP
.B millrace check my.toml
Say what would run; open nothing.
.TP
.B millrace schedule partime \-\-stages 3 \-\-samples 6
Draw the order of the workers' actions.
)";

}  // namespace

std::string completion(const CLI::App& program) {
  return "# Completion for bash, written by: millrace --completion bash\n_millrace_table='" +
         table(program) + "'\n_millrace_look_up='" + kLookUp + "'\n" + kBash;
}

std::string man_page(const CLI::App& program) {
  std::ostringstream out;
  const auto commands = program.get_subcommands({});
  out << ".TH MILLRACE 1 \"\" \"millrace " << program.version() << "\" \"User Commands\"\n"
      << ".SH NAME\nmillrace \\- " << plain(as_clause(program.get_description())) << "\n"
      << ".SH SYNOPSIS\n.nh\n.ad l\n";
  for (const CLI::App* const command : commands) write_synopsis(out, *command);
  out << ".SH DESCRIPTION\n"
         "Frames of a video stream pass through a pipeline of stages, one on each GPU or CPU core. "
         "Each stage\nforwards, backpropagates and updates at every step, so N stages learn from N "
         "frames at once.\n"
      << ".SH OPTIONS\n";
  for (const CLI::Option* const option : program.get_options()) write_option(out, *option);
  out << ".SH COMMANDS\n";
  for (const CLI::App* const command : commands) {
    out << ".SS millrace " << command->get_name() << "\n"
        << plain(command->get_description()) << "\n";
    for (const CLI::Option* const option : command->get_options()) write_option(out, *option);
    if (!command->get_footer().empty())
      out << ".PP\n.nf\n" << plain(command->get_footer()) << "\n.fi\n";
  }
  out << ".SH CONFIG KEYS\nA config is TOML. "
      << "\\fB\\-\\-set\\fR \\fItable.key\\fR=\\fIvalue\\fR overrides a key of it; a bare word is "
         "a string.\n";
  for (const app::KeyEntry& key : app::key_entries()) {
    out << ".TP\n" << bold(key.path) << " = " << plain(key.default_text) << "\n";
    out << plain(key.meaning) << "\n.br\n" << plain(key.range) << "\n";
  }
  write_layers(out);
  out << kAfterOptions;
  return out.str();
}

}  // namespace millrace::cli
