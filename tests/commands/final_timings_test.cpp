#include "commands/final_timings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

std::vector<InputLine> lines_of(const std::vector<std::pair<int64_t, std::string>>& names) {
  std::vector<InputLine> lines;
  for (const auto& [line, name] : names) lines.push_back({.line = line, .id = digest128(name)});
  return lines;
}

RequestTiming row(int64_t line, const std::string& custom_id) { return {.line = line, .custom_id = custom_id, .done_s = 1}; }

TEST(FinalTimings, RowsFollowTheInputOfToday) {
  std::vector<RequestTiming> rows = {row(1, "a"), row(2, "b"), row(3, "gone")};
  align_with_input(rows, lines_of({{1, "b"}, {4, "new"}, {5, "a"}}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].custom_id, "b");
  EXPECT_EQ(rows[0].line, 1);
  EXPECT_EQ(rows[1].custom_id, "a");
  EXPECT_EQ(rows[1].line, 5);
}

TEST(FinalTimings, LostRowsComeFromTheRecords) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / ("lockstep_final_" + std::to_string(::getpid()));
  std::ofstream(path)
      << R"({"id":"x","custom_id":"a","response":{"status_code":200,"request_id":"r","body":{"choices":[{"finish_reason":"stop"}],)"
      << R"("usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}},"error":null})"
      << "\n"
      << R"({"id":"x","custom_id":"b","response":null,"error":{"code":"c","message":"m"}})"
      << "\n"
      << R"({"id":"x","custom_id":"c","response":null,"error":{"code":"c","message":"m"}})"
      << "\n";
  std::vector<RequestTiming> rows = {row(5, "b")};
  add_rows_of_records(rows, lines_of({{2, "a"}, {5, "b"}, {6, "c"}}), path);
  std::filesystem::remove(path);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].line, 2);
  EXPECT_EQ(rows[0].custom_id, "a");
  EXPECT_EQ(rows[0].n_prompt, 7);
  EXPECT_EQ(rows[0].n_generated, 3);
  EXPECT_EQ(rows[0].finish_reason, "stop");
  EXPECT_TRUE(std::isnan(rows[0].done_s));
  EXPECT_EQ(rows[1].done_s, 1);  // measured
  EXPECT_EQ(rows[2].custom_id, "c");
  EXPECT_EQ(rows[2].finish_reason, "error");
}

}  // namespace
}  // namespace lockstep
