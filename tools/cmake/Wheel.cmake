# Adds program and module to the wheel of `tools/package wheel`, twice: for systems with GStreamer and for those
# without. MILLRACE_PLAIN is where the latter were installed.
set(folder millrace/$<IF:$<BOOL:${MILLRACE_GSTREAMER}>,gstreamer,plain>)
set(binaries millrace millrace_python)
foreach(module millrace_cuda millrace_codecs)
  if(TARGET ${module})
    list(APPEND binaries ${module})
  endif()
endforeach()
if(MILLRACE_GSTREAMER)
  set_target_properties(gstmillrace PROPERTIES INSTALL_RPATH "$ORIGIN/..;$ORIGIN/../../../torch/lib")
  install(TARGETS gstmillrace DESTINATION ${folder}/element COMPONENT python EXCLUDE_FROM_ALL)  # its own folder, for GST_PLUGIN_PATH
  if(TARGET millrace_mpi)
    list(APPEND binaries millrace_mpi)
  endif()
  install(DIRECTORY ${MILLRACE_PLAIN}/millrace/plain DESTINATION millrace COMPONENT python USE_SOURCE_PERMISSIONS EXCLUDE_FROM_ALL)
  install(PROGRAMS tools/bindings/python/millrace_program.py DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME millrace
          COMPONENT python EXCLUDE_FROM_ALL)
endif()
set_target_properties(${binaries} PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib;$ORIGIN/../../nvidia/cu13/lib")
install(TARGETS ${binaries} DESTINATION ${folder} COMPONENT python EXCLUDE_FROM_ALL)
