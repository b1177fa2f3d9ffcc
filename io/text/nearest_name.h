// "Did you mean" for unknown names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace millrace::io {

/// Counts insertions, deletions, substitutions and swaps of adjacent characters.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known name with the fewest edits to `name`, the first if several; `known` is not empty.
std::string nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace millrace::io
