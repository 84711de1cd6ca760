#include "commands/threads.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace lockstep {

namespace {

constexpr int kMaxThreads = 256;  // derived; --threads may say more

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void take_smaller(std::optional<double>& smallest, std::optional<double> value) {
  if (value && (!smallest || *value < *smallest)) smallest = value;
}

}  // namespace

std::optional<double> parse_cpu_max(const std::string& text) {
  std::istringstream words(text);
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || !(quota > 0) || !(period > 0)) return std::nullopt;
  return quota / period;
}

std::optional<double> cgroup_quota_cores() {
  std::optional<double> quota;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (controllers.empty()) {  // version 2: the limits of all groups above count too
      for (int depth = 0; depth < 64; ++depth) {
        take_smaller(quota, parse_cpu_max(first_line("/sys/fs/cgroup" + path + "/cpu.max")));
        if (path.empty() || path == "/") break;
        path.erase(path.rfind('/'));
      }
    } else if (controllers == "cpu" || controllers == "cpu,cpuacct" || controllers == "cpuacct,cpu") {
      const std::string directory = "/sys/fs/cgroup/cpu" + path;
      take_smaller(quota, parse_cpu_max(first_line(directory + "/cpu.cfs_quota_us") + ' ' +
                                        first_line(directory + "/cpu.cfs_period_us")));
    }
  }
  return quota;
}

int derive_threads(double core_share, std::optional<double> quota_cores, int node_size, int requested) {
  if (requested > 0) return requested;
  double cores = core_share;
  if (quota_cores) cores = std::min(cores, *quota_cores / std::max(node_size, 1));
  // Thirds and sevenths of cores add up to a hair less than they should.
  return std::clamp(static_cast<int>(std::floor(cores + 1e-6)), 1, kMaxThreads);
}

int threads_for_rank(const MpiSession& session, int requested) {
  return derive_threads(session.core_share, cgroup_quota_cores(), session.node_size, requested);
}

}  // namespace lockstep
