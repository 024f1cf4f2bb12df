#pragma once
#include <rocprofiler-sdk/rocprofiler.h>

extern "C" {
typedef struct {
  size_t size;
  const char* name;
  const uint32_t handle;
} rocprofiler_client_id_t;
typedef void (*rocprofiler_client_finalize_t)(rocprofiler_client_id_t);
typedef int (*rocprofiler_tool_initialize_t)(rocprofiler_client_finalize_t, void*);
typedef void (*rocprofiler_tool_finalize_t)(void*);
typedef struct {
  size_t size;
  rocprofiler_tool_initialize_t initialize;
  rocprofiler_tool_finalize_t finalize;
  void* tool_data;
} rocprofiler_tool_configure_result_t;
typedef rocprofiler_tool_configure_result_t* (*rocprofiler_configure_func_t)(uint32_t, const char*, uint32_t, rocprofiler_client_id_t*);

rocprofiler_tool_configure_result_t* rocprofiler_configure(uint32_t, const char*, uint32_t, rocprofiler_client_id_t*);
rocprofiler_status_t rocprofiler_force_configure(rocprofiler_configure_func_t);
}
