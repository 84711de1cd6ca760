// timings.h5 from rows that are never all in memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "telemetry/timings_h5.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TEST(TimingsH5, RequestsInSlices) {
  const fs::path dir = fs::temp_directory_path() / ("lockstep_slices_" + std::to_string(::getpid()));
  fs::create_directories(dir);
  const std::string path = dir / "timings.h5";
  constexpr size_t n = 40000;
  size_t asked = 0;
  const auto rows = [&](size_t begin, size_t end) {
    EXPECT_EQ(begin, asked);  // one after the other
    asked = end;
    std::vector<RequestTiming> slice;
    for (size_t i = begin; i < end; ++i)
      slice.push_back({.line = static_cast<int64_t>(i) + 1,
                       .custom_id = "ключ-" + std::to_string(i + 1),
                       .done_s = 2.5,
                       .finish_reason = "stop"});
    return slice;
  };
  write_timings_h5(path, {}, {n, rows});
  const Timings t = read_timings_h5(path);
  ASSERT_EQ(t.requests.size(), n);
  for (size_t i = 0; i < n; ++i) {
    ASSERT_EQ(t.requests[i].line, static_cast<int64_t>(i) + 1);
    ASSERT_EQ(t.requests[i].custom_id, "ключ-" + std::to_string(i + 1));
    ASSERT_EQ(t.requests[i].finish_reason, "stop");
    ASSERT_EQ(t.requests[i].done_s, 2.5);
  }
  EXPECT_THROW(write_timings_h5(path, {}, {n, [](size_t, size_t) { return std::vector<RequestTiming>(3); }}), Error);
  EXPECT_EQ(read_timings_h5(path).requests.size(), n);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace lockstep
