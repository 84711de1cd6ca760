#include "telemetry/nvml.h"

#include <dlfcn.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "base/error.h"

namespace lockstep {

namespace {

// What is used of NVML, as its public API has it (NVIDIA, "NVML API Reference Guide", docs.nvidia.com/deploy/nvml-api). These
// functions take no versioned structs, so that their layouts are fixed.
using NvmlReturn = int;
using NvmlDevice = void*;
constexpr NvmlReturn kSuccess = 0;  // NVML_SUCCESS
constexpr int kTemperatureGpu = 0;  // NVML_TEMPERATURE_GPU
constexpr int kClockSm = 1;         // NVML_CLOCK_SM
constexpr int kClockMemory = 2;     // NVML_CLOCK_MEM
struct NvmlUtilization {            // nvmlUtilization_t, percent
  unsigned int gpu, memory;
};
struct NvmlMemory {  // nvmlMemory_t, bytes
  unsigned long long total, free, used;
};

struct Nvml {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlReturn) = nullptr;
  NvmlReturn (*handle_by_bus_id)(const char*, NvmlDevice*) = nullptr;
  NvmlReturn (*total_energy)(NvmlDevice, unsigned long long*) = nullptr;  // mJ since the driver was loaded
  NvmlReturn (*power_usage)(NvmlDevice, unsigned int*) = nullptr;         // mW
  NvmlReturn (*temperature)(NvmlDevice, int, unsigned int*) = nullptr;    // C
  NvmlReturn (*clock_info)(NvmlDevice, int, unsigned int*) = nullptr;     // MHz
  NvmlReturn (*utilization_rates)(NvmlDevice, NvmlUtilization*) = nullptr;
  NvmlReturn (*memory_info)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlReturn (*throttle_reasons)(NvmlDevice, unsigned long long*) = nullptr;

  NvmlDevice device = nullptr;
  bool initialised = false;

  Nvml() = default;
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (initialised && shutdown != nullptr) shutdown();
  }
};

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

// The library stays open: one that may have threads is not to be taken away from under them.
bool load(const std::string& path, Nvml& nvml, std::string& why_not) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();  // begins with the path
    why_not = reason != nullptr ? reason : path;
    return false;
  }
  find(library, "nvmlInit_v2", nvml.init);
  find(library, "nvmlShutdown", nvml.shutdown);
  find(library, "nvmlErrorString", nvml.error_string);
  find(library, "nvmlDeviceGetHandleByPciBusId_v2", nvml.handle_by_bus_id);
  find(library, "nvmlDeviceGetTotalEnergyConsumption", nvml.total_energy);
  find(library, "nvmlDeviceGetPowerUsage", nvml.power_usage);
  find(library, "nvmlDeviceGetTemperature", nvml.temperature);
  find(library, "nvmlDeviceGetClockInfo", nvml.clock_info);
  find(library, "nvmlDeviceGetUtilizationRates", nvml.utilization_rates);
  find(library, "nvmlDeviceGetMemoryInfo", nvml.memory_info);
  find(library, "nvmlDeviceGetCurrentClocksEventReasons", nvml.throttle_reasons);
  if (nvml.throttle_reasons == nullptr)  // the name until driver 530
    find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.throttle_reasons);
  if (nvml.init == nullptr || nvml.handle_by_bus_id == nullptr) {
    why_not = path + ": is no NVML";
    return false;
  }
  return true;
}

std::string text_of(const Nvml& nvml, NvmlReturn code) {
  const char* text = nvml.error_string != nullptr ? nvml.error_string(code) : nullptr;
  return text != nullptr ? text : concat("error ", code);
}

// The ways to write one bus id: as given, as NVML prints it, as CUDA prints it.
std::vector<std::string> spellings(const std::string& bus_id) {
  std::vector<std::string> all = {bus_id};
  unsigned int domain = 0, bus = 0, device = 0;
  if (std::sscanf(bus_id.c_str(), "%x:%x:%x", &domain, &bus, &device) != 3) return all;
  for (const char* form : {"%08X:%02X:%02X.0", "%04x:%02x:%02x.0"}) {
    char text[64];
    std::snprintf(text, sizeof text, form, domain, bus, device);
    all.emplace_back(text);
  }
  return all;
}

GpuReading read_gpu(const Nvml& nvml) {
  GpuReading r;
  // One value of the kind a function gives; false where it can't be had.
  const auto ask = [&](auto* function, auto* value, auto... what) {
    return function != nullptr && function(nvml.device, what..., value) == kSuccess;
  };
  unsigned int value = 0;
  unsigned long long wide = 0;
  if (ask(nvml.total_energy, &wide)) r.energy_j = static_cast<double>(wide) * 1e-3;
  if (ask(nvml.power_usage, &value)) r.power_w = value * 1e-3;
  if (ask(nvml.temperature, &value, kTemperatureGpu)) r.temperature_c = value;
  if (ask(nvml.clock_info, &value, kClockSm)) r.sm_clock_mhz = value;
  if (ask(nvml.clock_info, &value, kClockMemory)) r.memory_clock_mhz = value;
  if (NvmlUtilization u{}; ask(nvml.utilization_rates, &u))
    r.utilisation_percent = u.gpu, r.memory_utilisation_percent = u.memory;
  if (NvmlMemory memory{}; ask(nvml.memory_info, &memory)) r.memory_used_bytes = static_cast<int64_t>(memory.used);
  if (ask(nvml.throttle_reasons, &wide)) r.throttle_reasons = static_cast<int64_t>(wide);
  return r;
}

}  // namespace

ReadGpu nvml_reader(const std::string& bus_id, const std::string& library, std::string& why_not) {
  const auto nvml = std::make_shared<Nvml>();
  if (!load(library, *nvml, why_not)) return {};
  NvmlReturn code = nvml->init();
  nvml->initialised = code == kSuccess;
  if (!nvml->initialised) {
    why_not = concat(library, ": ", text_of(*nvml, code));
    return {};
  }
  for (const std::string& spelling : spellings(bus_id))
    if (code = nvml->handle_by_bus_id(spelling.c_str(), &nvml->device); code == kSuccess)
      return [nvml] { return read_gpu(*nvml); };
  why_not = concat(library, ": GPU ", bus_id, ": ", text_of(*nvml, code));
  return {};
}

}  // namespace lockstep
