// The man page, as roff.
#include <cctype>   // tolower
#include <sstream>  // putting it together

#include "tools/cli/shell/option_text.h"

namespace millrace::cli {
namespace {

/// Text that roff shows as it is: no escapes, no requests, hyphens that can be copied.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if ((c == '.' || c == '\'') && out.empty())
      out += std::string("\\&") + c;
    else
      out += c;
  }
  return out;
}

/// A sentence without its capital and its full stop, as whatis shows it.
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

void write_option(std::ostream& out, const OptionEntry& option) {
  out << ".TP\n" << (option.positional ? italic(option.names[0]) : list(option.names));
  if (!option.value.empty() && !option.positional) out << " " << italic(option.value);
  out << "\n" << plain(option.meaning) << "\n";
  if (!option.range.empty()) out << "(" << plain(option.range) << ")\n";
  if (!option.choices.empty()) out << "(" << list(option.choices) << ")\n";
}

void write_synopsis(std::ostream& out, const CommandEntry& command) {
  out << ".B millrace " << command.name << "\n";
  for (const OptionEntry& option : command.options) {
    if (!option.positional) continue;
    const std::string name = italic(option.names[0]);
    out << (option.required ? name : "[" + name + "]") << "\n";
  }
  out << "[" << italic("option") << "]...\n.br\n";
}

/// `layers`: as describe_layers() writes them, a type's keys farther in than the type.
void write_layers(std::ostream& out, const std::string& layers) {
  out << ".SH LAYERS\nWith model.preset \\(dqlayers\\(dq the network is a list of "
         "\\fB[[model.layer]]\\fR tables. Each has a \\fBtype\\fR and its keys:\n";
  std::istringstream in(layers);
  std::string line;
  for (int heading = 0; heading < 2; ++heading) std::getline(in, line);
  while (std::getline(in, line)) {
    const std::size_t indent = line.find_first_not_of(' ');
    const std::size_t end = line.find(indent > 4 ? " = " : ": ", indent);
    if (end == line.npos) continue;
    const std::string name = bold(line.substr(indent, end - indent));
    if (indent > 4) {
      out << ".br\n" << name << plain(line.substr(end)) << "\n";
    } else {
      out << ".TP\n" << name << "\n" << plain(line.substr(end + 2)) << "\n";
    }
  }
}

constexpr const char* kAfterOptions = R"(.SH EXIT STATUS
.TP
.B 0
Done. Ctrl\-C and SIGTERM drain the pipeline, save everything and end with 0; a second one ends at once.
.TP
.B 1
The run failed.
.TP
.B 2
Bad usage, config or weights; said before any device or source is opened.
.TP
.B 3
The source cannot be opened.
.SH EXAMPLES
.TP
.B millrace run
Learn from the sample video with every key at its default.
.TP
.B millrace run my.toml \-\-set optimizer.lr=0.003 \-\-frames 1000 \-\-report report.json
A config of one's own, with one key changed.
.TP
.B millrace check my.toml
What would run; opens nothing.
.TP
.B millrace schedule partime \-\-stages 3 \-\-samples 6
Who does what when.
)";

}  // namespace

std::string man_page(const OptionTree& tree, const std::string& layers) {
  std::ostringstream out;
  out << ".TH MILLRACE 1 \"\" \"millrace " << tree.version << "\" \"User Commands\"\n"
      << ".SH NAME\nmillrace \\- " << plain(as_clause(tree.meaning)) << "\n"
      << ".SH SYNOPSIS\n.nh\n.ad l\n";
  for (const CommandEntry& command : tree.commands) write_synopsis(out, command);
  out << ".SH DESCRIPTION\n"
         "Frames of a video stream pass through a pipeline of stages, one on each GPU or CPU core, "
         "that\nforward, backpropagate and update at every step, so that N stages learn from N "
         "frames at once.\n";
  out << ".SH OPTIONS\n";
  for (const OptionEntry& option : tree.options) write_option(out, option);
  out << ".SH COMMANDS\n";
  for (const CommandEntry& command : tree.commands) {
    out << ".SS millrace " << command.name << "\n" << plain(command.meaning) << "\n";
    for (const OptionEntry& option : command.options) write_option(out, option);
    if (!command.names.empty()) out << ".PP\n.nf\n" << plain(command.names) << "\n.fi\n";
  }
  out << ".SH CONFIG KEYS\nA config is TOML. "
      << "\\fB\\-\\-set\\fR \\fItable.key\\fR=\\fIvalue\\fR goes on top of it; a bare word is a "
         "string.\n";
  for (const KeyEntry& key : tree.keys) {
    out << ".TP\n" << bold(key.path) << " = " << plain(key.default_text) << "\n";
    out << plain(key.meaning) << "\n.br\n" << plain(key.range) << "\n";
  }
  write_layers(out, layers);
  out << kAfterOptions;
  return out.str();
}

}  // namespace millrace::cli
