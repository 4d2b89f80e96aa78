# find_package(skt-checkpoint): targets skt::checkpoint, skt::checkpoint-static and, if it was
# installed with a Fortran compiler, skt::fortran.
include(CMakeFindDependencyMacro)
find_dependency(MPI COMPONENTS C)
get_filename_component(skt_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET skt::checkpoint)
  add_library(skt::checkpoint SHARED IMPORTED)
  set_target_properties(skt::checkpoint PROPERTIES
    IMPORTED_LOCATION "${skt_prefix}/lib/libskt-checkpoint.so"
    INTERFACE_INCLUDE_DIRECTORIES "${skt_prefix}/include"
    INTERFACE_LINK_LIBRARIES MPI::MPI_C)

  add_library(skt::checkpoint-static STATIC IMPORTED)
  separate_arguments(skt_system UNIX_COMMAND "@SYSTEM@")
  set_target_properties(skt::checkpoint-static PROPERTIES
    IMPORTED_LOCATION "${skt_prefix}/lib/libskt-checkpoint.a"
    INTERFACE_INCLUDE_DIRECTORIES "${skt_prefix}/include"
    INTERFACE_LINK_LIBRARIES "MPI::MPI_C;${skt_system}")

  if(EXISTS "${skt_prefix}/lib/libskt-fortran.a")
    add_library(skt::fortran STATIC IMPORTED)
    set_target_properties(skt::fortran PROPERTIES
      IMPORTED_LOCATION "${skt_prefix}/lib/libskt-fortran.a"
      INTERFACE_INCLUDE_DIRECTORIES "${skt_prefix}/include"
      INTERFACE_LINK_LIBRARIES skt::checkpoint)
  endif()
endif()
