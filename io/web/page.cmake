# The page: its server, and its files inside the program.
find_package(Boost 1.74 REQUIRED)  # Asio and Beast: headers alone
find_package(nlohmann_json REQUIRED)
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_path(MILLRACE_DYGRAPHS dygraph.min.js PATHS /usr/share/javascript/dygraphs REQUIRED
          DOC "Folder of dygraph.min.js and dygraph.min.css (Debian: libjs-dygraphs)")

set(page ${CMAKE_CURRENT_SOURCE_DIR}/web/page)
set(assets
  "/|text/html|${page}/index.html"
  "/app.js|text/javascript|${page}/app.js"
  "/charts.js|text/javascript|${page}/charts.js"
  "/controls.js|text/javascript|${page}/controls.js"
  "/format.js|text/javascript|${page}/format.js"
  "/stages.js|text/javascript|${page}/stages.js"
  "/app.css|text/css|${page}/app.css"
  "/icon.svg|image/svg+xml|${page}/icon.svg"
  "/dygraph.js|text/javascript|${MILLRACE_DYGRAPHS}/dygraph.min.js"
  "/dygraph.css|text/css|${MILLRACE_DYGRAPHS}/dygraph.min.css")
list(TRANSFORM assets REPLACE ".*\\|" "" OUTPUT_VARIABLE asset_files)
list(JOIN assets "," asset_list)
set(embedded ${CMAKE_CURRENT_BINARY_DIR}/page_assets.cpp)
add_custom_command(OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -DOUT=${embedded} "-DASSETS=${asset_list}" -P ${CMAKE_CURRENT_SOURCE_DIR}/web/embed.cmake
  DEPENDS ${asset_files} ${CMAKE_CURRENT_SOURCE_DIR}/web/embed.cmake VERBATIM)

target_sources(millrace_io PRIVATE
  ${embedded}
  web/answers.cpp
  web/json.cpp
  web/metrics.cpp
  web/newsroom.cpp
  web/picture_set.cpp
  web/server.cpp
  web/session.cpp
  web/viewers.cpp)
target_link_libraries(millrace_io PRIVATE Boost::headers nlohmann_json::nlohmann_json prometheus-cpp::core)
