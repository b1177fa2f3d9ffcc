# A wheel links what it uses of Debian's static OpenCV: the shared one loads OpenGL, which it asks only for pictures that
# lie on a GPU.
foreach(module core imgproc)
  get_target_property(configuration opencv_${module} IMPORTED_CONFIGURATIONS)
  find_library(MILLRACE_OPENCV_${module} libopencv_${module}.a REQUIRED)
  set_target_properties(opencv_${module} PROPERTIES IMPORTED_LOCATION_${configuration} ${MILLRACE_OPENCV_${module}})
endforeach()
target_link_libraries(opencv_core INTERFACE -l:liblapack.so.3 -l:libblas.so.3 tbb z)
target_link_options(opencv_core INTERFACE -Wl,--gc-sections,--as-needed,--exclude-libs,ALL,--defsym=glXGetProcAddressARB=0)
