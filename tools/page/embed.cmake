# Writes a C++ header with the page's files: cmake -DOUT=FILE -DASSETS=FILE,... -P embed.cmake
set(type.html text/html)
set(type.js text/javascript)
set(type.css text/css)
set(type.json application/json)
set(type.svg image/svg+xml)
string(REPLACE "," ";" assets "${ASSETS}")
set(rows "")
foreach(asset ${assets})
  get_filename_component(name ${asset} NAME)
  get_filename_component(extension ${asset} LAST_EXT)
  string(REPLACE "index.html" "" path "/${name}")
  string(REPLACE ".min." "." path ${path})
  file(READ ${asset} bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  string(APPEND rows "    {\"${path}\", \"${type${extension}}\", {\"${bytes}\", ${size}}},\n")
endforeach()
file(WRITE ${OUT} "// Made by tools/page/embed.cmake.
#pragma once

#include <string_view>

namespace millrace::page {

constexpr struct Asset {
  std::string_view path;  ///< the requested path: \"/app.js\"
  std::string_view type, text;
} kAssets[] = {
${rows}};

}  // namespace millrace::page
")
