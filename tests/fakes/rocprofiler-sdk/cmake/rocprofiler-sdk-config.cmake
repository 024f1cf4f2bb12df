get_filename_component(_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
add_library(rocprofiler-sdk::rocprofiler-sdk SHARED IMPORTED)
set_target_properties(rocprofiler-sdk::rocprofiler-sdk PROPERTIES
  IMPORTED_LOCATION "${_prefix}/lib/librocprofiler-sdk.so"
  INTERFACE_INCLUDE_DIRECTORIES "${_prefix}/include")
