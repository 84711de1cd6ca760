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

class FinalTimings : public testing::Test {
 protected:
  FinalTimings() { std::filesystem::create_directories(dir_); }
  ~FinalTimings() override { std::filesystem::remove_all(dir_); }

  void measured(int attempt, const std::vector<std::pair<int64_t, std::string>>& names) const {
    RawTimings raw(dir_, attempt, 0);
    for (const auto& [line, name] : names)
      raw.add(RequestTiming{.line = line, .custom_id = name, .attempt = attempt, .done_s = 1});
    raw.add(PhaseTiming{"run", 2});
  }

  const std::string dir_ = std::filesystem::temp_directory_path() / ("lockstep_final_" + std::to_string(::getpid()));
};

TEST_F(FinalTimings, RowsFollowTheInputOfToday) {
  measured(1, {{1, "a"}, {2, "b"}, {3, "gone"}});
  measured(2, {{5, "a"}});
  const auto lines = lines_of({{1, "b"}, {4, "new"}, {5, "a"}});
  FinalRows rows(dir_, lines, false);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows.rest().phases.size(), 2u);
  for (const bool at_once : {true, false}) {
    std::vector<RequestTiming> all = rows.slice(0, at_once ? 2 : 1);
    if (!at_once) all.push_back(rows.slice(1, 2).front());
    EXPECT_EQ(all[0].custom_id, "b");
    EXPECT_EQ(all[0].line, 1);
    EXPECT_EQ(all[0].attempt, 1);
    EXPECT_EQ(all[1].custom_id, "a");
    EXPECT_EQ(all[1].line, 5);
    EXPECT_EQ(all[1].attempt, 2);
  }
  std::filesystem::resize_file(dir_ + "/journal/timings/e0001-r0000.bin", 20);
  EXPECT_THROW(rows.slice(0, 1), Error);
}

TEST_F(FinalTimings, LostRowsComeFromTheRecords) {
  std::ofstream(dir_ + "/completions.jsonl")
      << R"({"id":"x","custom_id":"a","response":{"status_code":200,"request_id":"r","body":{"choices":[{"finish_reason":"stop"}],)"
      << R"("usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}},"error":null})"
      << "\n"
      << R"({"id":"x","custom_id":"b","response":null,"error":{"code":"c","message":"m"}})"
      << "\n"
      << R"({"id":"x","custom_id":"c","response":null,"error":{"code":"c","message":"m"}})"
      << "\n";
  measured(1, {{5, "b"}});
  const auto lines = lines_of({{2, "a"}, {5, "b"}, {6, "c"}});
  FinalRows final_rows(dir_, lines, true);
  const std::vector<RequestTiming> rows = final_rows.slice(0, final_rows.size());
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
  EXPECT_EQ(FinalRows(dir_, lines, false).size(), 1u);
}

}  // namespace
}  // namespace lockstep
