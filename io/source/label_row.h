// One label as JSON: a line of a file, or what somebody says meanwhile.
#pragma once

#include <optional>     // what it leaves out
#include <string>       // names
#include <string_view>  // lines

namespace millrace::io {

struct LabelRow {
  std::optional<double> frame, time;  ///< a number; seconds
  std::optional<std::string> name;    ///< of the class; none: the class ends
};

/// {"frame": 17, "class": "train"}, {"time": 3.5, "class": null}. Throws std::invalid_argument with
/// what is wrong.
LabelRow parse_label(std::string_view text);

}  // namespace millrace::io
