# `cmake --install`: the program, the libraries with their headers, and files for find_package(millrace) and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/millrace)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)  # the rest besides the program's

# The engine with its parts. Input and output are a separate component, as they need GStreamer and OpenCV.
set(engine_parts engine engine_core capture kernels team stages plan_files plugin)
set(run_parts io page events run_core checkpoint_files alerts config plugins run)  # need input and output
foreach(part ${engine_parts} ${run_parts})
  add_library(millrace::${part} ALIAS millrace_${part})
  set_target_properties(millrace_${part} PROPERTIES EXPORT_NAME ${part})
  target_compile_features(millrace_${part} INTERFACE cxx_std_20)
endforeach()
list(TRANSFORM engine_parts PREPEND millrace_ OUTPUT_VARIABLE engine_targets)
list(TRANSFORM run_parts PREPEND millrace_ OUTPUT_VARIABLE run_targets)

# Users include <millrace/run.h>; headers include one another relative to the second folder.
set(include_dirs ${CMAKE_INSTALL_INCLUDEDIR} ${CMAKE_INSTALL_INCLUDEDIR}/millrace)
install(TARGETS ${engine_targets} EXPORT millrace ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${include_dirs})
install(TARGETS ${run_targets} EXPORT millrace_io ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${include_dirs})

# The public headers, and what they include; all others may change without notice.
set(public_headers
  tools/app/run.h                # a run as a library
  tools/app/plugins/plugin.h         # a plug-in's interface
  engine/trainer/trainer.h       # a network cut into stages, trained from your own feed
  engine/schedule/registry.h engine/schedule/schedule_csv.h engine/schedule/verifier.h engine/simulate/timeline.h  # schedules as data
  engine/plan/plan_text.h engine/plan_files/profile_json.h  # costs, and the best cut
  engine/simulate/simulator.h    # schedules on hypothetical devices
  io/source/source.h io/queue/reader.h io/queue/planar.h  # input
  io/plot/plot.h io/video/video_writer.h)                 # output
function(add_header header)
  if(NOT header IN_LIST headers)
    list(APPEND headers ${header})
    file(STRINGS ${header} includes REGEX "^#include \"")
    foreach(include ${includes})
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" include ${include})
      add_header(${include})
    endforeach()
  endif()
  set(headers ${headers} PARENT_SCOPE)
endfunction()
foreach(header ${public_headers})
  add_header(${header})
endforeach()
foreach(header ${headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace/${folder})
endforeach()
install(FILES tools/app/run.h tools/app/plugins/plugin.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace)
install(EXPORT millrace NAMESPACE millrace:: FILE millraceTargets.cmake DESTINATION ${package_dir})
install(EXPORT millrace_io NAMESPACE millrace:: FILE millraceIoTargets.cmake DESTINATION ${package_dir})

# The build's LibTorch is found at its location; the program has it in its RPATH.
file(STRINGS ${MILLRACE_TORCH}/include/torch/headeronly/version.h torch_version REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
list(TRANSFORM torch_version REPLACE "[^0-9]" "")
list(JOIN torch_version "." MILLRACE_TORCH_VERSION)
set(MILLRACE_MOSQUITTO OFF)
if(MOSQUITTO_FOUND)
  set(MILLRACE_MOSQUITTO ON)
  set(MILLRACE_PC_MOSQUITTO libmosquitto)
endif()
configure_package_config_file(tools/cmake/millraceConfig.cmake.in ${CMAKE_BINARY_DIR}/millraceConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/millraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/millraceConfig.cmake ${CMAKE_BINARY_DIR}/millraceConfigVersion.cmake
              tools/cmake/LibTorchTarget.cmake DESTINATION ${package_dir})

# The .pc file gives the prefix relative to itself, so that it is valid for any --prefix.
file(RELATIVE_PATH MILLRACE_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(tools/cmake/millrace.pc.in ${CMAKE_BINARY_DIR}/millrace.pc @ONLY)
if(MILLRACE_IO)
  set(MILLRACE_PC_IO "prometheus-cpp-core cairo")
  set(MILLRACE_PC_OPENCV "-lopencv_imgproc -lopencv_core")
endif()
configure_file(tools/cmake/millrace-run.pc.in ${CMAKE_BINARY_DIR}/millrace-run.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/millrace.pc ${CMAKE_BINARY_DIR}/millrace-run.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The target libtorch adds the build's LibTorch to the RPATH; if that is gone, one beside the program is used.
set(torch_beside ${CMAKE_INSTALL_LIBDIR}/millrace/torch)
set(MILLRACE_BESIDE lib/millrace ${torch_beside}/lib ${torch_beside}/../nvidia/cu13/lib)  # modules; laid out as in wheels
list(TRANSFORM MILLRACE_BESIDE PREPEND "$ORIGIN/../" OUTPUT_VARIABLE beside)
set_target_properties(millrace PROPERTIES INSTALL_RPATH "${beside}")
install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
list(TRANSFORM MILLRACE_BESIDE PREPEND "$ORIGIN/../../" OUTPUT_VARIABLE beside)
if(TARGET millrace_cuda)
  get_filename_component(cudart_folder ${MILLRACE_CUDART} DIRECTORY)
  set_target_properties(millrace_cuda PROPERTIES INSTALL_RPATH "${beside};${cudart_folder}")
endif()
foreach(module millrace_cuda millrace_codecs millrace_gstreamer)
  if(TARGET ${module})
    install(TARGETS ${module} LIBRARY DESTINATION lib/millrace COMPONENT program)
  endif()
endforeach()
if(TARGET millrace_mpi)
  install(TARGETS millrace_mpi LIBRARY DESTINATION lib/millrace COMPONENT mpi)
endif()
# GStreamer looks for elements below /usr only; elsewhere GST_PLUGIN_PATH must name the folder.
if(TARGET gstmillrace)
  list(TRANSFORM MILLRACE_BESIDE PREPEND "$ORIGIN/../../../" OUTPUT_VARIABLE beside)
  set_target_properties(gstmillrace PROPERTIES INSTALL_RPATH "${beside}")
  install(TARGETS gstmillrace LIBRARY DESTINATION lib/${CMAKE_LIBRARY_ARCHITECTURE}/gstreamer-1.0 COMPONENT program)
endif()
# At installation the program writes its man page and completion.
set(texts ${CMAKE_BINARY_DIR}/texts)
install(CODE "
  function(write_text name)
    execute_process(COMMAND $<TARGET_FILE:millrace> \${ARGN} OUTPUT_FILE ${texts}/\${name} COMMAND_ERROR_IS_FATAL ANY)
  endfunction()
  file(MAKE_DIRECTORY ${texts})
  write_text(millrace.1 --man)
  write_text(millrace --completion bash)" COMPONENT program)
install(FILES ${texts}/millrace.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${texts}/millrace DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
install(FILES tools/page/monitoring/grafana-dashboard.json tools/page/monitoring/prometheus-alerts.yml
        DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace COMPONENT program)
install(FILES README.md ARCHITECTURE.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
