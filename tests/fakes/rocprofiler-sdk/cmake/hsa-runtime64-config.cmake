get_filename_component(_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
add_library(hsa-runtime64::hsa-runtime64 SHARED IMPORTED)
set_target_properties(hsa-runtime64::hsa-runtime64 PROPERTIES
  IMPORTED_LOCATION "${_prefix}/lib/libhsa-runtime64.so"
  INTERFACE_INCLUDE_DIRECTORIES "${_prefix}/include")
