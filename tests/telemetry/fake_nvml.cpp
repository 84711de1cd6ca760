// A libnvidia-ml.so.1 for machines without a GPU: answers with what a file says, which LOCKSTEP_FAKE_NVML names and nvmlInit_v2
// reads. The declarations are the real library's, written down apart from those of src/telemetry/nvml.cpp.
//   init 9                             nvmlInit_v2 returns this
//   gpu 00000000:1B:00.0               what follows is of this one, which is known by just this spelling
//   power 250000 none 300000           one value a call, the last one again and again; none: not supported; so is what isn't
//   named energy 5000 +300                   a last value with a sign is added with every call
// Values: energy (mJ) power (mW) temperature sm_clock memory_clock utilisation memory_utilisation memory_used reasons.
// FAKE_NVML_OLD: the library of an old driver, which lacks two functions.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kUninitialized = 1;

struct Series {
  std::vector<std::string> values;
  size_t n_asked = 0;
  unsigned long long last = 0;
};
struct Device {
  std::map<std::string, Series> series;
};

std::mutex mutex;
std::map<std::string, Device> devices;
int n_users = 0;

int next(void* device, const std::string& name, unsigned long long& value) {
  const std::lock_guard lock(mutex);
  if (n_users == 0) return kUninitialized;
  Series& s = static_cast<Device*>(device)->series[name];
  if (s.values.empty()) return kNotSupported;
  const std::string& text = s.values[std::min(s.n_asked++, s.values.size() - 1)];
  if (text == "none") return kNotSupported;
  s.last = text[0] == '+' ? s.last + std::stoull(text.substr(1)) : std::stoull(text);
  value = s.last;
  return 0;
}

int next(void* device, const std::string& name, unsigned int* value) {
  unsigned long long wide = 0;
  const int code = next(device, name, wide);
  if (code == 0) *value = static_cast<unsigned int>(wide);
  return code;
}

}  // namespace

extern "C" {

struct nvmlUtilization_t {
  unsigned int gpu;
  unsigned int memory;
};
struct nvmlMemory_t {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

int nvmlInit_v2() {
  const std::lock_guard lock(mutex);
  if (n_users > 0) return ++n_users, 0;
  devices.clear();
  const char* path = std::getenv("LOCKSTEP_FAKE_NVML");
  std::ifstream file(path != nullptr ? path : "");
  Device* device = nullptr;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, word;
    words >> name >> word;
    if (name == "init" && word != "0") return std::stoi(word);
    if (name == "gpu") device = &devices[word];
    if (name == "gpu" || device == nullptr) continue;
    for (; words; words >> word) device->series[name].values.push_back(word);
  }
  n_users = 1;
  return 0;
}

int nvmlShutdown() {
  const std::lock_guard lock(mutex);
  return n_users > 0 ? --n_users, 0 : kUninitialized;
}

const char* nvmlErrorString(int code) { return code == kNotFound ? "Not Found" : code == 9 ? "Driver Not Loaded" : "Error"; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  const std::lock_guard lock(mutex);
  const auto found = devices.find(bus_id);
  if (found == devices.end()) return kNotFound;
  *device = &found->second;
  return 0;
}

#ifndef FAKE_NVML_OLD
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* mj) { return next(device, "energy", *mj); }
int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* bits) { return next(device, "reasons", *bits); }
#endif
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* bits) { return next(device, "reasons", *bits); }
int nvmlDeviceGetPowerUsage(void* device, unsigned int* mw) { return next(device, "power", mw); }
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned int* celsius) {
  return sensor == 0 ? next(device, "temperature", celsius) : kInvalidArgument;
}
int nvmlDeviceGetClockInfo(void* device, int clock, unsigned int* mhz) {
  return clock == 1 ? next(device, "sm_clock", mhz) : clock == 2 ? next(device, "memory_clock", mhz) : kInvalidArgument;
}
int nvmlDeviceGetUtilizationRates(void* device, nvmlUtilization_t* u) {
  const int code = next(device, "utilisation", &u->gpu);
  return code != 0 ? code : next(device, "memory_utilisation", &u->memory);
}
int nvmlDeviceGetMemoryInfo(void* device, nvmlMemory_t* memory) {
  memory->total = 80ull << 30;
  const int code = next(device, "memory_used", memory->used);
  memory->free = memory->total - memory->used;
  return code;
}

}  // extern "C"
