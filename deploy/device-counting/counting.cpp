// Counts hardware events of whole GPUs for a few milliseconds and says what it counted as one JSON object.
//
// README.md describes the arguments and the object. Runs once and ends: whoever starts it bounds its time.
// It changes nothing of a GPU: no clock, no power limit, no performance level, no limiter.

#include <hsa/hsa.h>
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <rocprofiler-sdk/version.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#if ROCPROFILER_VERSION_MAJOR < 1
#error "rocprofiler-sdk 1.0 (ROCm 7.0) or later is needed: earlier ones name these functions differently"
#endif

namespace {

constexpr const char* kName = "amdgpu-exporter-counting";
constexpr const char* kVersion = "1.0";
constexpr int kProtocol = 1;
constexpr double kLongestMs = 10'000.0;
constexpr size_t kFirstRecords = 1 << 14;
constexpr size_t kMostRecords = 1 << 22;

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

struct Arguments {
  std::vector<std::string> gpus;  // PCI addresses or node numbers; none: every GPU
  std::vector<std::string> counters;
  double milliseconds = 10.0;
};

// One GPU: what it is, what was asked of it and what came of that.
struct Unit {
  rocprofiler_agent_v0_t agent{};
  std::string pci;
  rocprofiler_context_id_t context{};
  rocprofiler_counter_config_id_t config{};
  std::map<uint64_t, std::string> names;
  std::vector<std::string> unknown;
  std::map<std::string, double> sums;
  std::map<std::string, size_t> instances;
  std::string status = "failed";
  std::string error;
  std::string lock;  // what the library said against the driver's lock; nothing: empty
  bool started = false;
  double seconds = 0.0;
  double read_seconds = 0.0;
  Clock::time_point begun{};
};

Arguments g_arguments;
std::vector<Unit> g_units;
std::vector<std::string> g_errors;
std::string g_sdk;

// --- JSON ----------------------------------------------------------------------------------------------

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    char escape[8];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c > 0x7e) {
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + '"';
}

std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  const bool whole = value == std::floor(value) && std::fabs(value) < 9e15;
  std::snprintf(text, sizeof text, whole ? "%.0f" : "%.9g", value);
  return text;
}

std::string list(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const auto& text : texts) out += (out.size() > 1 ? ", " : "") + quoted(text);
  return out + "]";
}

template <typename Value>
std::string object(const std::map<std::string, Value>& values) {
  std::string out = "{";
  for (const auto& [name, value] : values) {
    out += (out.size() > 1 ? ", " : "") + quoted(name) + ": " + number(static_cast<double>(value));
  }
  return out + "}";
}

std::string described(const Unit& unit) {
  const auto& agent = unit.agent;
  std::string out = "{\"pci\": " + quoted(unit.pci);
  out += ", \"node\": " + std::to_string(agent.node_id);
  out += ", \"gpu_id\": " + std::to_string(agent.gpu_id);
  out += ", \"render_minor\": " + std::to_string(agent.drm_render_minor);
  out += ", \"device_id\": " + std::to_string(agent.device_id);
  out += ", \"gfx\": " + quoted(agent.name ? agent.name : "");
  out += ", \"compute_units\": " + std::to_string(agent.cu_count);
  out += ", \"xccs\": " + std::to_string(agent.num_xcc);
  out += ", \"status\": " + quoted(unit.status);
  out += ", \"lock\": " + (unit.lock.empty() ? "null" : quoted(unit.lock));
  out += ", \"seconds\": " + (unit.status == "ok" ? number(unit.seconds) : "null");
  out += ", \"read_seconds\": " + (unit.status == "ok" ? number(unit.read_seconds) : "null");
  out += ", \"counters\": " + object(unit.sums);
  out += ", \"instances\": " + object(unit.instances);
  out += ", \"unknown\": " + list(unit.unknown);
  out += ", \"error\": " + (unit.error.empty() ? "null" : quoted(unit.error));
  return out + "}";
}

// Prints the object; true if any GPU was counted.
bool report() {
  bool any = false;
  std::string devices;
  for (const auto& unit : g_units) {
    any = any || unit.status == "ok";
    devices += (devices.empty() ? "" : ", ") + described(unit);
  }
  std::printf(
      "{\"protocol\": %d, \"tool\": %s, \"version\": %s, \"sdk\": %s, \"asked_seconds\": %s, "
      "\"counters_asked\": %s, \"devices\": [%s], \"errors\": %s}\n",
      kProtocol, quoted(kName).c_str(), quoted(kVersion).c_str(), quoted(g_sdk).c_str(),
      number(g_arguments.milliseconds / 1e3).c_str(), list(g_arguments.counters).c_str(), devices.c_str(),
      list(g_errors).c_str());
  std::fflush(stdout);
  return any;
}

// --- statuses ------------------------------------------------------------------------------------------

std::string status_of(rocprofiler_status_t status) {
  switch (status) {
    case ROCPROFILER_STATUS_SUCCESS:
      return "ok";
    case ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED:
      return "denied";
    case ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES:
    case ROCPROFILER_STATUS_ERROR_CONTEXT_CONFLICT:
    case ROCPROFILER_STATUS_ERROR_CONTEXT_ERROR:
      return "busy";
    case ROCPROFILER_STATUS_ERROR_EXCEEDS_HW_LIMIT:
      return "too_many_counters";
    case ROCPROFILER_STATUS_ERROR_AGENT_ARCH_NOT_SUPPORTED:
    case ROCPROFILER_STATUS_ERROR_NO_HARDWARE_COUNTERS:
      return "unsupported";
    default:
      return "failed";
  }
}

// Gives up on a GPU, with the call that failed.
bool good(Unit& unit, rocprofiler_status_t status, const char* call) {
  if (status == ROCPROFILER_STATUS_SUCCESS) return true;
  const char* words = rocprofiler_get_status_string(status);
  unit.status = status_of(status);
  unit.error = std::string(call) + ": " + (words ? words : "error " + std::to_string(status));
  return false;
}

// What the library writes to stderr while it counts: only its words tell whether the counters were ours.
int g_heard = -1;
int g_stderr = -1;

void pass_on(std::string* text) {
  char block[4096];
  ssize_t count;
  lseek(g_heard, 0, SEEK_SET);
  while ((count = read(g_heard, block, sizeof block)) > 0) {
    if (text && text->size() < (1u << 20)) text->append(block, static_cast<size_t>(count));
    if (write(g_stderr, block, static_cast<size_t>(count)) < 0) return;
  }
}

// Whoever dies meanwhile still says why.
void on_death(int sign) {
  pass_on(nullptr);
  std::signal(sign, SIG_DFL);
  std::raise(sign);
}

void listen() {
  g_heard = memfd_create("stderr", MFD_CLOEXEC);
  g_stderr = fcntl(2, F_DUPFD_CLOEXEC, 3);
  if (g_heard < 0 || g_stderr < 0) return;
  for (int sign : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGINT}) std::signal(sign, on_death);
  dup2(g_heard, 2);
}

// Passes all on to where it belongs, and gives it.
std::string stop_listening() {
  std::string text;
  if (g_heard < 0 || g_stderr < 0) return text;
  for (int sign : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGINT}) std::signal(sign, SIG_DFL);
  dup2(g_stderr, 2);
  pass_on(&text);
  return text;
}

bool line_says(const std::string& text, const Unit& unit, const char* words) {
  const std::string id = "evice " + std::to_string(unit.agent.id.handle);
  size_t from = 0;
  while (from < text.size()) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string line = text.substr(from, end - from);
    const size_t at = line.find(id);
    const bool named = at != std::string::npos && !std::isdigit(static_cast<unsigned char>(line[at + id.size()]));
    if (named && line.find(words) != std::string::npos) return true;
    from = end + 1;
  }
  return false;
}

// Without the driver's lock, other processes' SQ counters stay 0; with another's lock nothing can be trusted.
void judge_lock(const std::string& said) {
  for (auto& unit : g_units) {
    if (line_says(said, unit, "has a profiler attached")) {
      unit.lock = "busy";
      if (unit.started) {
        unit.status = "busy";
        unit.error = "another profiler holds the counters of this GPU";
      }
    } else if (line_says(said, unit, "permission")) {
      unit.lock = "denied";
    } else if (line_says(said, unit, "does not support locking")) {
      unit.lock = "unsupported";
    } else if (line_says(said, unit, "Failed to lock")) {
      unit.lock = "failed";
    }
  }
}

// --- set up --------------------------------------------------------------------------------------------

std::string pci_of(const rocprofiler_agent_v0_t& agent) {
  char text[24];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", agent.domain, agent.location_id >> 8 & 0xff,
                agent.location_id >> 3 & 0x1f, agent.location_id & 7);
  return text;
}

bool wanted(const rocprofiler_agent_v0_t& agent, const std::string& pci) {
  if (g_arguments.gpus.empty()) return true;
  for (const auto& gpu : g_arguments.gpus) {
    if (gpu == pci || gpu == std::to_string(agent.node_id)) return true;
  }
  return false;
}

rocprofiler_status_t take_agents(rocprofiler_agent_version_t version, const void** agents, size_t count, void*) {
  if (version != ROCPROFILER_AGENT_INFO_VERSION_0) return ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_ABI;
  for (size_t i = 0; i < count; ++i) {
    const auto& agent = *static_cast<const rocprofiler_agent_v0_t*>(agents[i]);
    if (agent.type != ROCPROFILER_AGENT_TYPE_GPU || !wanted(agent, pci_of(agent))) continue;
    Unit unit;
    unit.agent = agent;
    unit.pci = pci_of(agent);
    g_units.push_back(unit);
  }
  return ROCPROFILER_STATUS_SUCCESS;
}

void choose_counters(rocprofiler_context_id_t context, rocprofiler_agent_id_t,
                     rocprofiler_device_counting_agent_cb_t set_config, void* data) {
  auto& unit = *static_cast<Unit*>(data);
  const auto status = set_config(context, unit.config);
  if (status != ROCPROFILER_STATUS_SUCCESS) good(unit, status, "setting the counters");
}

// Contexts can be made in here only.
int set_up(rocprofiler_client_finalize_t, void*) {
  const auto status = rocprofiler_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, take_agents,
                                                         sizeof(rocprofiler_agent_v0_t), nullptr);
  if (status != ROCPROFILER_STATUS_SUCCESS) {
    g_errors.push_back(std::string("listing the GPUs: ") + rocprofiler_get_status_string(status));
    return -1;
  }
  for (auto& unit : g_units) {
    unit.status = "ok";
    good(unit, rocprofiler_create_context(&unit.context), "making a context") &&
        good(unit,
             rocprofiler_configure_device_counting_service(unit.context, rocprofiler_buffer_id_t{},
                                                           unit.agent.id, choose_counters, &unit),
             "asking for device counting");
  }
  return 0;
}

rocprofiler_status_t take_counters(rocprofiler_agent_id_t, rocprofiler_counter_id_t* counters, size_t count,
                                   void* data) {
  auto& found = *static_cast<std::vector<rocprofiler_counter_id_t>*>(data);
  found.assign(counters, counters + count);
  return ROCPROFILER_STATUS_SUCCESS;
}

// The counters asked for as this GPU knows them; what it does not know is named and the rest is counted.
bool configure(Unit& unit) {
  std::vector<rocprofiler_counter_id_t> known;
  if (!good(unit, rocprofiler_iterate_agent_supported_counters(unit.agent.id, take_counters, &known),
            "listing the counters")) {
    return false;
  }
  std::map<std::string, rocprofiler_counter_id_t> ids;
  for (auto id : known) {
    rocprofiler_counter_info_v0_t info{};
    if (rocprofiler_query_counter_info(id, ROCPROFILER_COUNTER_INFO_VERSION_0, &info) ==
            ROCPROFILER_STATUS_SUCCESS &&
        info.name) {
      ids.emplace(info.name, id);
    }
  }
  std::vector<rocprofiler_counter_id_t> chosen;
  for (const auto& name : g_arguments.counters) {
    const auto found = ids.find(name);
    if (found == ids.end()) {
      unit.unknown.push_back(name);
    } else {
      chosen.push_back(found->second);
      unit.names.emplace(found->second.handle, name);
    }
  }
  if (chosen.empty()) {
    unit.status = "unsupported";
    unit.error = "this GPU has none of the counters";
    return false;
  }
  return good(unit, rocprofiler_create_counter_config(unit.agent.id, chosen.data(), chosen.size(), &unit.config),
              "grouping the counters");
}

// Some releases load what is needed only through HIP.
bool load_hip() {
  for (const char* name : {"libamdhip64.so.7", "libamdhip64.so.8", "libamdhip64.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) {
      auto* init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "hipInit"));
      return init && init(0) == 0;
    }
  }
  return false;
}

bool start(Unit& unit) {
  auto status = rocprofiler_start_context(unit.context);
  if (status == ROCPROFILER_STATUS_ERROR_HSA_NOT_LOADED && load_hip()) {
    status = rocprofiler_start_context(unit.context);
  }
  unit.begun = Clock::now();
  unit.started = good(unit, status, "starting to count") && unit.status == "ok";
  return unit.started;
}

void read_counters(Unit& unit) {
  std::vector<rocprofiler_counter_record_t> records;
  auto status = ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES;
  size_t count = 0;
  Clock::time_point asked;
  for (size_t room = kFirstRecords; status == ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES && room <= kMostRecords;
       room *= 16) {
    records.assign(room, rocprofiler_counter_record_t{});
    count = room;
    asked = Clock::now();
    status = rocprofiler_sample_device_counting_service(unit.context, rocprofiler_user_data_t{},
                                                        ROCPROFILER_COUNTER_FLAG_NONE, records.data(), &count);
  }
  const auto read = Clock::now();
  if (!good(unit, status, "reading the counters")) return;
  unit.seconds = seconds_between(unit.begun, read);
  unit.read_seconds = seconds_between(asked, read);
  for (size_t i = 0; i < count && i < records.size(); ++i) {
    rocprofiler_counter_id_t id{};
    if (rocprofiler_query_record_counter_id(records[i].id, &id) != ROCPROFILER_STATUS_SUCCESS) continue;
    const auto name = unit.names.find(id.handle);
    if (name == unit.names.end()) continue;
    unit.sums[name->second] += records[i].counter_value;
    unit.instances[name->second] += 1;
  }
  for (const auto& [handle, name] : unit.names) {
    if (!unit.instances.count(name)) {
      unit.error = "no value came for " + name;
    }
  }
  if (unit.sums.empty()) {
    unit.status = "failed";
    unit.error = "no value came for any counter";
  }
}

// --- the whole -----------------------------------------------------------------------------------------

[[noreturn]] void misused(const std::string& why) {
  std::fprintf(stderr, "%s: %s; see %s --help\n", kName, why.c_str(), kName);
  std::exit(2);
}

void help() {
  std::printf(
      "usage: %s [--gpu PCI|NODE]... [--milliseconds N] COUNTER...\n"
      "Count hardware events of whole GPUs for a while, and print one JSON object (protocol %d).\n\n"
      "  --gpu PCI|NODE      a GPU by PCI address (0000:c1:00.0) or node number; repeat it; none: every GPU\n"
      "  --milliseconds N    how long to count (default 10, at most %.0f)\n"
      "  --version           print version and protocol\n\n"
      "example: %s --gpu 0000:c1:00.0 --milliseconds 5 GRBM_COUNT GRBM_GUI_ACTIVE\n",
      kName, kProtocol, kLongestMs, kName);
}

void parse(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) misused(word + " needs a value");
      return argv[++i];
    };
    if (word == "--help" || word == "-h") {
      help();
      std::exit(0);
    } else if (word == "--version") {
      std::printf("%s version: %s protocol: %d\n", kName, kVersion, kProtocol);
      std::exit(0);
    } else if (word == "--gpu") {
      g_arguments.gpus.push_back(value());
    } else if (word == "--milliseconds") {
      const std::string text = value();
      char* end = nullptr;
      g_arguments.milliseconds = std::strtod(text.c_str(), &end);
      const bool fits = g_arguments.milliseconds > 0 && g_arguments.milliseconds <= kLongestMs;
      if (text.empty() || *end || !fits) misused("--milliseconds " + text + " is no time up to 10000");
    } else if (word.rfind("-", 0) == 0) {
      misused("unknown option " + word);
    } else {
      g_arguments.counters.push_back(word);
    }
  }
  if (g_arguments.counters.empty()) misused("no counter is named");
}

std::string why_no_hsa(hsa_status_t status) {
  const char* words = nullptr;
  hsa_status_string(status, &words);
  std::string text = std::string("hsa_init: ") + (words ? words : "error " + std::to_string(status));
  if (access("/dev/kfd", R_OK | W_OK) != 0) text += std::string("; /dev/kfd: ") + std::strerror(errno);
  return text;
}

void name_the_missing() {
  for (const auto& gpu : g_arguments.gpus) {
    bool found = false;
    for (const auto& unit : g_units) {
      found = found || gpu == unit.pci || gpu == std::to_string(unit.agent.node_id);
    }
    if (!found) g_errors.push_back("no GPU " + gpu);
  }
}

void count() {
  listen();
  for (auto& unit : g_units) {
    if (unit.status == "ok" && configure(unit)) start(unit);
  }
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(g_arguments.milliseconds));
  for (auto& unit : g_units) {
    if (unit.started) read_counters(unit);
  }
  for (auto& unit : g_units) {
    if (unit.started) rocprofiler_stop_context(unit.context);
  }
  judge_lock(stop_listening());
  for (auto& unit : g_units) {
    if (unit.status == "ok") continue;
    unit.sums.clear();
    unit.instances.clear();
  }
}

}  // namespace

extern "C" rocprofiler_tool_configure_result_t* rocprofiler_configure(uint32_t version, const char*, uint32_t,
                                                                      rocprofiler_client_id_t* client) {
  client->name = kName;
  g_sdk = std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
          std::to_string(version % 100);
  static rocprofiler_tool_configure_result_t made{sizeof(rocprofiler_tool_configure_result_t), set_up, nullptr,
                                                  nullptr};
  return &made;
}

int main(int argc, char** argv) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  parse(argc, argv);
  // The library must know its client before HSA is loaded.
  const auto configured = rocprofiler_force_configure(rocprofiler_configure);
  if (configured != ROCPROFILER_STATUS_SUCCESS && g_sdk.empty()) {
    g_errors.push_back(std::string("configuring: ") + rocprofiler_get_status_string(configured));
  }
  name_the_missing();
  const auto loaded = hsa_init();
  if (loaded != HSA_STATUS_SUCCESS) {
    const bool denied = access("/dev/kfd", F_OK) == 0 && access("/dev/kfd", R_OK | W_OK) != 0;
    g_errors.push_back(why_no_hsa(loaded));
    for (auto& unit : g_units) {
      unit.status = denied ? "denied" : "failed";
      unit.error = g_errors.back();
    }
  } else if (g_errors.empty() || !g_units.empty()) {
    count();
  }
  if (g_units.empty() && g_errors.empty()) g_errors.push_back("no GPU is seen");
  const bool any = report();
  if (loaded == HSA_STATUS_SUCCESS) hsa_shut_down();
  for (const auto& unit : g_units) {
    if (unit.status != "ok") std::fprintf(stderr, "%s: %s: %s\n", kName, unit.pci.c_str(), unit.error.c_str());
  }
  for (const auto& error : g_errors) std::fprintf(stderr, "%s: %s\n", kName, error.c_str());
  return any ? 0 : 1;
}
