# Writes a header with the text of files, for a compiler that runs within the program:
#   kMain: a source that includes FILES; kNames, kSources: what #include finds, FILES and HEADERS.
# Names are relative to the root. Changes of the files reconfigure.
function(millrace_embed header namespace)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "FILES;HEADERS")
  set(main "")
  set(names "")
  set(sources "")
  foreach(file ${arg_FILES} ${arg_HEADERS})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${file})
    file(READ ${CMAKE_SOURCE_DIR}/${file} text)
    if(file IN_LIST arg_FILES)
      string(APPEND main "#include \"${file}\"\\n")
    endif()
    string(APPEND names "    \"${file}\",\n")
    string(APPEND sources "    R\"embedded(${text})embedded\",\n")
  endforeach()
  string(REPLACE "\"" "\\\"" main "${main}")
  file(CONFIGURE OUTPUT ${header} @ONLY CONTENT
"#pragma once
namespace ${namespace} {
constexpr const char* kMain = \"@main@\";
constexpr const char* kNames[] = {
@names@};
constexpr const char* kSources[] = {
@sources@};
}  // namespace ${namespace}
")
endfunction()
