// One GPU's power, clocks and memory, from the library that comes with NVIDIA's driver. It is opened while running, so that
// every build has this and no machine needs a driver. Not for choosing a GPU, and nothing is ever set.
//   std::string why_not;
//   if (const ReadGpu read = nvml_reader("0000:1b:00.0", kNvmlLibrary, why_not)) GpuReading now = read();
#pragma once

#include <functional>
#include <string>

#include "telemetry/timing_records.h"

namespace lockstep {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

using ReadGpu = std::function<GpuReading()>;  // from any thread, one at a time

// bus_id: "0000:1b:00.0" as CUDA writes it; a domain of eight digits, capitals and a missing function are the same GPU.
// Empty, with the reason in why_not, where there is no library, no driver or no such GPU. A library that lacks a function gives
// the other values.
ReadGpu nvml_reader(const std::string& bus_id, const std::string& library, std::string& why_not);

}  // namespace lockstep
