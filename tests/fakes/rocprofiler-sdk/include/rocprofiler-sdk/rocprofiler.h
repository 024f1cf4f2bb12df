// Names and arguments as documented for rocprofiler-sdk 1.0; only what the helper uses.
#pragma once
#include <stddef.h>
#include <stdint.h>

extern "C" {

typedef enum {
  ROCPROFILER_STATUS_SUCCESS = 0,
  ROCPROFILER_STATUS_ERROR,
  ROCPROFILER_STATUS_ERROR_CONTEXT_ERROR,
  ROCPROFILER_STATUS_ERROR_CONTEXT_CONFLICT,
  ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED,
  ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_ABI,
  ROCPROFILER_STATUS_ERROR_HSA_NOT_LOADED,
  ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES,
  ROCPROFILER_STATUS_ERROR_NO_HARDWARE_COUNTERS,
  ROCPROFILER_STATUS_ERROR_EXCEEDS_HW_LIMIT,
  ROCPROFILER_STATUS_ERROR_AGENT_ARCH_NOT_SUPPORTED,
  ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED,
  ROCPROFILER_STATUS_ERROR_COUNTER_NOT_FOUND,
} rocprofiler_status_t;

typedef struct { uint64_t handle; } rocprofiler_context_id_t;
typedef struct { uint64_t handle; } rocprofiler_agent_id_t;
typedef struct { uint64_t handle; } rocprofiler_buffer_id_t;
typedef struct { uint64_t handle; } rocprofiler_counter_id_t;
typedef struct { uint64_t handle; } rocprofiler_counter_config_id_t;
typedef uint64_t rocprofiler_counter_instance_id_t;
typedef union { uint64_t value; void* ptr; } rocprofiler_user_data_t;

typedef enum { ROCPROFILER_AGENT_TYPE_NONE = 0, ROCPROFILER_AGENT_TYPE_CPU, ROCPROFILER_AGENT_TYPE_GPU } rocprofiler_agent_type_t;
typedef enum { ROCPROFILER_AGENT_INFO_VERSION_NONE = 0, ROCPROFILER_AGENT_INFO_VERSION_0 = 1 } rocprofiler_agent_version_t;
typedef enum { ROCPROFILER_COUNTER_INFO_VERSION_NONE = 0, ROCPROFILER_COUNTER_INFO_VERSION_0 } rocprofiler_counter_info_version_id_t;
typedef enum { ROCPROFILER_COUNTER_FLAG_NONE = 0, ROCPROFILER_COUNTER_FLAG_ASYNC } rocprofiler_counter_flag_t;

typedef struct {
  uint64_t size;
  rocprofiler_agent_id_t id;
  rocprofiler_agent_type_t type;
  uint32_t num_xcc;
  uint32_t cu_count;
  uint32_t gfx_target_version;
  uint16_t vendor_id;
  uint16_t device_id;
  uint32_t location_id;
  uint32_t domain;
  uint32_t drm_render_minor;
  uint64_t gpu_id;
  const char* name;
  uint32_t node_id;
} rocprofiler_agent_v0_t;

typedef struct {
  rocprofiler_counter_id_t id;
  const char* name;
  const char* description;
  const char* block;
  const char* expression;
  uint8_t is_constant : 1;
  uint8_t is_derived : 1;
} rocprofiler_counter_info_v0_t;

typedef struct {
  rocprofiler_counter_instance_id_t id;
  double counter_value;
  uint64_t dispatch_id;
  rocprofiler_user_data_t user_data;
  rocprofiler_agent_id_t agent_id;
} rocprofiler_counter_record_t;

typedef rocprofiler_status_t (*rocprofiler_query_available_agents_cb_t)(rocprofiler_agent_version_t, const void**, size_t, void*);
typedef rocprofiler_status_t (*rocprofiler_available_counters_cb_t)(rocprofiler_agent_id_t, rocprofiler_counter_id_t*, size_t, void*);
typedef rocprofiler_status_t (*rocprofiler_device_counting_agent_cb_t)(rocprofiler_context_id_t, rocprofiler_counter_config_id_t);
typedef void (*rocprofiler_device_counting_service_cb_t)(rocprofiler_context_id_t, rocprofiler_agent_id_t, rocprofiler_device_counting_agent_cb_t, void*);

const char* rocprofiler_get_status_string(rocprofiler_status_t);
rocprofiler_status_t rocprofiler_query_available_agents(rocprofiler_agent_version_t, rocprofiler_query_available_agents_cb_t, size_t, void*);
rocprofiler_status_t rocprofiler_create_context(rocprofiler_context_id_t*);
rocprofiler_status_t rocprofiler_start_context(rocprofiler_context_id_t);
rocprofiler_status_t rocprofiler_stop_context(rocprofiler_context_id_t);
rocprofiler_status_t rocprofiler_configure_device_counting_service(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_agent_id_t, rocprofiler_device_counting_service_cb_t, void*);
rocprofiler_status_t rocprofiler_sample_device_counting_service(rocprofiler_context_id_t, rocprofiler_user_data_t, rocprofiler_counter_flag_t, rocprofiler_counter_record_t*, size_t*);
rocprofiler_status_t rocprofiler_iterate_agent_supported_counters(rocprofiler_agent_id_t, rocprofiler_available_counters_cb_t, void*);
rocprofiler_status_t rocprofiler_query_counter_info(rocprofiler_counter_id_t, rocprofiler_counter_info_version_id_t, void*);
rocprofiler_status_t rocprofiler_query_record_counter_id(rocprofiler_counter_instance_id_t, rocprofiler_counter_id_t*);
rocprofiler_status_t rocprofiler_create_counter_config(rocprofiler_agent_id_t, rocprofiler_counter_id_t*, size_t, rocprofiler_counter_config_id_t*);
}
