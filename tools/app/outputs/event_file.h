// TensorBoard's event files, as far as scalars go.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace millrace::app {

/// Names and values of one moment; a "/" in a name groups what comes before it.
using Scalars = std::vector<std::pair<std::string, double>>;

/// What an event file begins with. `time`: seconds since 1970.
std::string event_file_head(double time);

/// One step's scalars, as a record to append.
std::string event_record(double time, std::int64_t step, const Scalars& scalars);

}  // namespace millrace::app
