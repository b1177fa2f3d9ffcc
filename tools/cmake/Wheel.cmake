# The files of a wheel, all in its folder `millrace`.
set(binaries millrace millrace_python)
foreach(module cuda codecs gstreamer mpi)
  if(TARGET millrace_${module})
    list(APPEND binaries millrace_${module})
  endif()
endforeach()
set_target_properties(${binaries} PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../torch/lib;$ORIGIN/../nvidia/cu13/lib")
add_custom_target(wheel DEPENDS ${binaries})
install(TARGETS ${binaries} DESTINATION millrace COMPONENT python EXCLUDE_FROM_ALL)
if(TARGET gstmillrace)
  add_dependencies(wheel gstmillrace)
  set_target_properties(gstmillrace PROPERTIES INSTALL_RPATH "$ORIGIN/..;$ORIGIN/../../torch/lib;$ORIGIN/../../nvidia/cu13/lib")
  install(TARGETS gstmillrace DESTINATION millrace/element COMPONENT python EXCLUDE_FROM_ALL)  # alone, for GST_PLUGIN_PATH
endif()
# What `millrace demo` looks at: 40 s of a street, then a tree.
find_program(MILLRACE_FFMPEG ffmpeg REQUIRED)
set(street ${CMAKE_BINARY_DIR}/street.mp4)
set(footage /usr/share/doc/opencv-doc/examples/data)
add_custom_command(OUTPUT ${street} VERBATIM
  COMMAND ${MILLRACE_FFMPEG} -v error -y -i ${footage}/vtest.avi -i ${footage}/tree.avi -filter_complex
    "[0]trim=end_frame=400,scale=192:144,fps=10,setsar=1[street];[1]trim=end_frame=60,scale=192:144,fps=10,setsar=1[tree];[street][tree]concat" -an -c:v libx264 ${street})
add_custom_target(street DEPENDS ${street})
add_dependencies(wheel street)
install(FILES ${street} DESTINATION millrace COMPONENT python EXCLUDE_FROM_ALL)
install(PROGRAMS tools/bindings/python/millrace/_program.py DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME millrace
        COMPONENT python EXCLUDE_FROM_ALL)
