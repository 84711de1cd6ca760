// libkernel_times.so: which kernels a run's GPU time goes to. The CUDA driver loads it into any program:
//   CUDA_INJECTION64_PATH=$PWD/libkernel_times.so KERNEL_TIMES=times.txt lockstep run ...
// At the program's end times.txt has a line for each class and kernel: seconds, share of the time from the first to the last
// kernel, launches. A gap is time without any kernel, and has lines by the kernels before and after it. Measured by CUPTI's
// activity records.
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Sum {
  double seconds = 0;
  uint64_t n = 0;
};
struct Span {
  uint64_t begin, end;  // ns
  const char* kernel;   // CUPTI's own, kept to the end
};
std::mutex mutex;
std::vector<Span>& spans() {
  static auto* all = new std::vector<Span>;  // outlives the program's own statics
  return *all;
}

constexpr size_t kBytes = size_t{8} << 20;

void CUPTIAPI give(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBytes));
  *size = *buffer == nullptr ? 0 : kBytes;
  *most_records = 0;
}

void CUPTIAPI take(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t n_valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, n_valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    spans().push_back({kernel->start, kernel->end, kernel->name});
  }
  std::free(buffer);
}

std::string readable(const std::string& mangled) {
  int status = 0;
  char* name = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string text = name == nullptr ? mangled : name;
  std::free(name);
  if (const size_t end = text.find('('); end != std::string::npos && end > 0 && text.find("(anonymous") != end)
    text.resize(end);
  return text.substr(0, 90);
}

const char* class_of(const std::string& name) {
  const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
  if (has("attend_")) return "attention";
  if (has("nvjet") || has("gemm") || has("cutlass") || has("cublas")) return "products";
  return "small kernels";
}

// Products under one name, ours without namespaces and arguments.
std::string short_name(const char* kernel) {
  std::string name = readable(kernel);
  if (class_of(name) == std::string("products")) return "product";
  if (const size_t anonymous = name.find("(anonymous namespace)::"); anonymous != std::string::npos)
    name.erase(0, anonymous + 23);
  name.resize(std::min(name.find_first_of("<("), name.size()));
  const size_t begin = name.rfind("::");
  return begin == std::string::npos ? name : name.substr(begin + 2);
}

void report() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard lock(mutex);
  if (spans().empty()) return;  // a child process that ran no kernel and would replace its parent's file
  const char* path = std::getenv("KERNEL_TIMES");
  std::FILE* out = path == nullptr ? stderr : std::fopen(path, "w");
  if (out == nullptr) return;
  auto& all = spans();
  std::sort(all.begin(), all.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  const auto first =
      std::find_if(all.begin(), all.end(), [](const Span& s) { return class_of(s.kernel) == std::string("attention"); });
  all.erase(all.begin(), first);
  double busy = 0, gaps = 0;
  uint64_t until = all.empty() ? 0 : all.front().begin;
  const char* last = nullptr;  // the kernel that ended at `until`
  std::map<std::string, Sum> classes, kernels, between;
  std::map<std::pair<const char*, const char*>, Sum> gaps_of;
  const auto add = [](Sum& sum, uint64_t ns) { sum.seconds += static_cast<double>(ns) * 1e-9, ++sum.n; };
  for (const auto& [begin, end, kernel] : all) {
    if (begin > until) {
      gaps += static_cast<double>(begin - until) * 1e-9;
      add(gaps_of[{last, kernel}], begin - until);
    }
    if (end > until) last = kernel;
    if (end > until) busy += static_cast<double>(end - std::max(begin, until)) * 1e-9;
    until = std::max(until, end);
    for (Sum* sum : {&classes[class_of(kernel)], &kernels[kernel]}) add(*sum, end - begin);
  }
  for (const auto& [kernel, sum] : gaps_of) {
    Sum& all_of = between[short_name(kernel.first) + " .. " + short_name(kernel.second)];
    all_of.seconds += sum.seconds, all_of.n += sum.n;
  }
  const double whole = busy + gaps;
  const auto line = [&](const std::string& name, const Sum& sum) {
    std::fprintf(out, "%9.3f s %5.1f %% %9llu  %s\n", sum.seconds, 100 * sum.seconds / whole,
                 static_cast<unsigned long long>(sum.n), name.c_str());
  };
  for (const auto& [name, sum] : classes) line(name, sum);
  line("gaps", {gaps, all.size()});
  for (const auto* sums : {&kernels, &between}) {
    std::vector<std::pair<std::string, Sum>> sorted(sums->begin(), sums->end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    std::fprintf(out, "\n");
    for (const auto& [name, sum] : sorted)
      if (sum.seconds > 0.001 * whole) line(readable(name), sum);
  }
  std::fprintf(out, "\nin the middle: begins at us, takes us\n");
  for (size_t i = all.size() / 2; i < std::min(all.size(), all.size() / 2 + 40); ++i)
    std::fprintf(out, "%9.1f %8.1f  %s\n", static_cast<double>(all[i].begin - all[all.size() / 2].begin) * 1e-3,
                 static_cast<double>(all[i].end - all[i].begin) * 1e-3, readable(all[i].kernel).c_str());
  if (out != stderr) std::fclose(out);
}

}  // namespace

extern "C" int InitializeInjection() {
  static bool begun = false;
  if (begun) return 1;  // the driver may ask twice
  begun = true;
  if (cuptiActivityRegisterCallbacks(give, take) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS)
    std::fprintf(stderr, "kernel_times: CUPTI gives no records of kernels\n");
  std::atexit(report);
  return 1;
}
