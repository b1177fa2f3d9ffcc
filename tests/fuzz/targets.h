// The fuzz targets: functions of bytes that must neither crash nor report anything, whatever they
// are.
#pragma once

#include <map>
#include <string>

namespace millrace::fuzz {

using Target = void (*)(const std::string& text);

/// By name.
const std::map<std::string, Target>& targets();

}  // namespace millrace::fuzz
