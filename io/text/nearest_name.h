// "Did you mean" for names that are not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace millrace::io {

/// A letter more, less or different, or two neighbours swapped, is one edit.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known name with the fewest edits to `name`. The first of equals; `known` is not empty.
std::string nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace millrace::io
