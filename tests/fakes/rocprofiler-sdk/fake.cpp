// rocprofiler-sdk and the HSA runtime as far as the helper calls them: a CPU, two MI300X, values known by heart.
//
// FAKE_SDK says how it behaves:
//   ok            both GPUs count
//   denied        starting is refused for want of CAP_PERFMON
//   lock_denied   the driver's lock is refused with a warning: SQ counters of others stay 0
//   lock_busy     another profiler holds the second GPU: a warning, and values that mean nothing
//   lock_old      the driver cannot lock
//   zeros         SQ counters 0 on a busy GPU, without any warning
//   too_many      the counters do not fit one pass
//   error         reading fails
//   nan           one counter is no number
//   silent        no record comes
//   many          more records than fit the first buffer
//   hang          reading never returns
//   abort         the library gives up as it does on a set beyond the hardware
//   no_hsa        HSA cannot be loaded
//   needs_hip     only HIP loads HSA fully
#include <hsa/hsa.h>
#include <rocprofiler-sdk/registration.h>

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Counter {
  const char* name;
  size_t instances;
  double each[2];  // of one instance, on the first and on the second GPU
};

// Eight dies at 2 GHz for 10 ms; half of the time something ran; 85 and 55 of 100 requests hit.
const Counter kCounters[] = {
    {"GRBM_COUNT", 8, {20e6, 20e6}},
    {"GRBM_GUI_ACTIVE", 8, {10e6, 10e6}},
    {"SQ_INSTS_VALU", 8, {190e6, 95e6}},
    {"SQ_WAVES", 8, {1000, 500}},
    {"TCC_HIT_sum", 1, {850, 550}},
    {"TCC_MISS_sum", 1, {150, 450}},
};
constexpr size_t kCount = sizeof kCounters / sizeof kCounters[0];

struct Context {
  uint64_t agent = 0;
  rocprofiler_device_counting_service_cb_t choose = nullptr;
  void* data = nullptr;
  std::vector<uint64_t> counters;
  bool running = false;
};

std::vector<Context> g_contexts;
std::vector<std::vector<uint64_t>> g_configs;
bool g_configured = false;
bool g_hsa = false;
bool g_setting_up = false;

std::string mode() {
  const char* text = std::getenv("FAKE_SDK");
  return text ? text : "ok";
}

rocprofiler_agent_v0_t agent(uint64_t id, rocprofiler_agent_type_t type, uint32_t node) {
  rocprofiler_agent_v0_t made{};
  made.size = sizeof made;
  made.id.handle = id;
  made.type = type;
  made.node_id = node;
  made.name = "some CPU";
  return made;
}

// An id of an instance holds its counter in the upper half.
uint64_t instance(uint64_t counter, size_t place) { return counter << 32 | place; }

void warn(uint64_t device, const char* words) {
  std::fprintf(stderr, "W20261201 12:00:00.000000 1 ioctl.cpp:90] Device %llu %s\n",
               static_cast<unsigned long long>(device), words);
}

rocprofiler_status_t set_config(rocprofiler_context_id_t context, rocprofiler_counter_config_id_t config) {
  g_contexts[context.handle - 1].counters = g_configs[config.handle - 1];
  return ROCPROFILER_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

void fake_hip_is_loaded() { g_hsa = true; }

hsa_status_t hsa_init() {
  if (mode() == "no_hsa") return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  if (!g_configured) std::abort();  // a client that comes too late is never told
  g_hsa = mode() != "needs_hip";
  return HSA_STATUS_SUCCESS;
}
hsa_status_t hsa_shut_down() { return HSA_STATUS_SUCCESS; }
hsa_status_t hsa_status_string(hsa_status_t, const char** words) {
  *words = "The runtime failed to allocate the necessary resources";
  return HSA_STATUS_SUCCESS;
}

const char* rocprofiler_get_status_string(rocprofiler_status_t status) {
  if (status == ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED) return "CAP_PERFMON is not set, permission denied";
  if (status == ROCPROFILER_STATUS_ERROR_EXCEEDS_HW_LIMIT) return "more than the hardware can collect";
  return status == ROCPROFILER_STATUS_SUCCESS ? "Success" : "General error";
}

rocprofiler_status_t rocprofiler_force_configure(rocprofiler_configure_func_t configure) {
  const rocprofiler_client_id_t made{sizeof(rocprofiler_client_id_t), nullptr, 7};
  rocprofiler_client_id_t client = made;
  auto* result = configure(10000, "fake", 0, &client);
  if (!client.name || result->size != sizeof *result) std::abort();
  g_configured = g_setting_up = true;
  result->initialize(nullptr, result->tool_data);
  g_setting_up = false;
  return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_query_available_agents(rocprofiler_agent_version_t version,
                                                        rocprofiler_query_available_agents_cb_t take, size_t,
                                                        void* data) {
  auto cpu = agent(100, ROCPROFILER_AGENT_TYPE_CPU, 0);
  auto one = agent(11, ROCPROFILER_AGENT_TYPE_GPU, 4), two = agent(1, ROCPROFILER_AGENT_TYPE_GPU, 5);
  for (auto* gpu : {&one, &two}) {
    gpu->name = "gfx942";
    gpu->cu_count = 304;
    gpu->num_xcc = 8;
    gpu->vendor_id = 0x1002;
    gpu->device_id = 0x74a1;
  }
  one.location_id = 0x500;
  one.gpu_id = 40001;
  one.drm_render_minor = 128;
  two.location_id = 0x2600;
  two.gpu_id = 40002;
  two.drm_render_minor = 136;
  const void* all[] = {&cpu, &one, &two};
  return take(version, all, 3, data);
}

rocprofiler_status_t rocprofiler_create_context(rocprofiler_context_id_t* id) {
  if (!g_setting_up) return ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED;
  g_contexts.emplace_back();
  id->handle = g_contexts.size();
  return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_configure_device_counting_service(rocprofiler_context_id_t context,
                                                                   rocprofiler_buffer_id_t,
                                                                   rocprofiler_agent_id_t agent_id,
                                                                   rocprofiler_device_counting_service_cb_t choose,
                                                                   void* data) {
  auto& held = g_contexts[context.handle - 1];
  held.agent = agent_id.handle;
  held.choose = choose;
  held.data = data;
  return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_iterate_agent_supported_counters(rocprofiler_agent_id_t agent_id,
                                                                  rocprofiler_available_counters_cb_t take,
                                                                  void* data) {
  std::vector<rocprofiler_counter_id_t> ids;
  for (size_t i = 0; i < kCount; ++i) ids.push_back({i + 1});
  return take(agent_id, ids.data(), ids.size(), data);
}

rocprofiler_status_t rocprofiler_query_counter_info(rocprofiler_counter_id_t id,
                                                    rocprofiler_counter_info_version_id_t, void* info) {
  if (id.handle == 0 || id.handle > kCount) return ROCPROFILER_STATUS_ERROR_COUNTER_NOT_FOUND;
  auto* told = static_cast<rocprofiler_counter_info_v0_t*>(info);
  told->id = id;
  told->name = kCounters[id.handle - 1].name;
  return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_query_record_counter_id(rocprofiler_counter_instance_id_t id,
                                                         rocprofiler_counter_id_t* counter) {
  counter->handle = id >> 32;
  return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_create_counter_config(rocprofiler_agent_id_t, rocprofiler_counter_id_t* ids,
                                                       size_t count, rocprofiler_counter_config_id_t* config) {
  if (mode() == "too_many") return ROCPROFILER_STATUS_ERROR_EXCEEDS_HW_LIMIT;
  if (mode() == "abort") {
    std::fprintf(stderr, "F20261201 packet exceeds the capabilities of the hardware\n");
    std::abort();
  }
  std::vector<uint64_t> chosen;
  for (size_t i = 0; i < count; ++i) chosen.push_back(ids[i].handle);
  g_configs.push_back(chosen);
  config->handle = g_configs.size();
  return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_start_context(rocprofiler_context_id_t id) {
  if (!g_hsa) return ROCPROFILER_STATUS_ERROR_HSA_NOT_LOADED;
  if (mode() == "denied") return ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED;
  auto& context = g_contexts[id.handle - 1];
  if (mode() == "lock_denied") {
    warn(context.agent, "could not be locked for profiling due to lack of permissions (capability SYS_PERFMON).");
  } else if (mode() == "lock_busy" && context.agent == 1) {
    warn(context.agent, "has a profiler attached to it. PMC Counters may be inaccurate.");
  } else if (mode() == "lock_old") {
    std::fprintf(stderr, "Driver/Kernel version does not support locking device %llu.\n",
                 static_cast<unsigned long long>(context.agent));
  }
  context.choose(id, {context.agent}, set_config, context.data);
  context.running = true;
  return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_stop_context(rocprofiler_context_id_t id) {
  g_contexts[id.handle - 1].running = false;
  return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_sample_device_counting_service(rocprofiler_context_id_t id, rocprofiler_user_data_t,
                                                                rocprofiler_counter_flag_t flags,
                                                                rocprofiler_counter_record_t* records,
                                                                size_t* count) {
  const auto& context = g_contexts[id.handle - 1];
  if (!context.running || flags != ROCPROFILER_COUNTER_FLAG_NONE) return ROCPROFILER_STATUS_ERROR_CONTEXT_ERROR;
  if (mode() == "error") return ROCPROFILER_STATUS_ERROR;
  while (mode() == "hang") pause();
  if (mode() == "silent") {
    *count = 0;
    return ROCPROFILER_STATUS_SUCCESS;
  }
  const bool second = context.agent == 1;
  const bool dark = mode() == "zeros" || mode() == "lock_denied" || mode() == "lock_old";
  const size_t times = mode() == "many" ? 4096 : 1;
  size_t used = 0;
  for (const auto counter : context.counters) {
    const auto& known = kCounters[counter - 1];
    const size_t records_of = known.instances * times;
    for (size_t i = 0; i < records_of; ++i, ++used) {
      if (used >= *count) return ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES;
      double value = known.each[second] / static_cast<double>(times);
      if (dark && std::strncmp(known.name, "SQ_", 3) == 0) value = 0;
      if (mode() == "nan" && std::strcmp(known.name, "SQ_WAVES") == 0) value = NAN;
      records[used] = {};
      records[used].id = instance(counter, i);
      records[used].counter_value = value;
    }
  }
  *count = used;
  return ROCPROFILER_STATUS_SUCCESS;
}
}
