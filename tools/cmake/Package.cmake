# `cpack --config build/release/CPackConfig.cmake -B build/packages`: Debian packages.
# LibTorch, which Debian lacks, is provided separately.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_CONTACT "Millrace <millrace@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# These libraries come from no package, unlike all others that the programs load.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${MILLRACE_TORCH}/lib ${MILLRACE_TORCH}/../nvidia/cu13/lib)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME millrace)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "neural networks that learn from live video, frame by frame
 The program, and the GStreamer element of that name. LibTorch ${MILLRACE_TORCH_VERSION} must be given, as
 /usr/lib/millrace/torch: docs/install.md says how.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS
    "gstreamer1.0-plugins-base, gstreamer1.0-plugins-good, gstreamer1.0-libav, python3-venv")

# Only for runs over several processes, as the others need no MPI.
if(TARGET millrace_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS millrace-mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_NAME millrace-mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "millrace (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)
  set(CPACK_COMPONENT_MPI_DESCRIPTION "Millrace over several processes
 The module that the program loads under mpirun.")
endif()

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libmillrace-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEV_DESCRIPTION "Millrace as C++ libraries
 Headers and static libraries, found by CMake and pkg-config.")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "nlohmann-json3-dev, libtomlplusplus-dev, libconcurrentqueue-dev, libreaderwriterqueue-dev, libhwy-dev, libboost-dev, libopencv-dev, libcairo2-dev, prometheus-cpp-dev, libmosquitto-dev, libsystemd-dev")

# Keep paths of the build machine out of packages.
set(CPACK_MILLRACE_BESIDE "${MILLRACE_BESIDE}")
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/tools/cmake/PackageRpath.cmake)
include(CPack)
