// The fuzz targets: functions of any bytes that must neither crash nor report anything.
#pragma once

#include <map>
#include <string>

namespace millrace::fuzz {

using Target = void (*)(const std::string& text);

/// [name]
const std::map<std::string, Target>& targets();

}  // namespace millrace::fuzz
