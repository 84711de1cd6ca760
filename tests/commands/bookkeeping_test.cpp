// The bookkeeping of a large file on rank 0: what it takes a line, that every line's record comes out in its place, and that a
// resume runs what is left and nothing else. Times: bench/bookkeeping_bench.cpp.
#include "tests/commands/bookkeeping.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "journal/output_record.h"
#include "journal/prompt_reader.h"
#include "support/tiny_model.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kReplicas = 3;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class BookkeepingTest : public testing::Test {
 protected:
  BookkeepingTest() {
    std::string name = testing::TempDir() + "/bookkeeping_XXXXXX";
    directory_ = ::mkdtemp(name.data());
    fs::create_directories(directory_ + "/model");
    write_tiny_model({}, directory_ + "/model");
  }
  ~BookkeepingTest() override { fs::remove_all(directory_); }

  RunOptions options(const std::string& input, const std::string& output) const {
    return {.model = directory_ + "/model", .input = directory_ + "/" + input, .output = directory_ + "/" + output};
  }
  std::string directory_;
};

// What `work` returns, done in a process of its own that ends as a killed one does: nothing is flushed, no destructor runs.
using Numbers = std::array<uint64_t, 3>;
Numbers in_process(const std::function<Numbers()>& work) {
  int ends[2];
  check(::pipe(ends) == 0, "pipe");
  const pid_t child = ::fork();
  check(child >= 0, "fork");
  if (child == 0) {
    ::mallopt(M_MMAP_THRESHOLD, 128 << 10);  // large blocks go back at once, so that a peak is of what is in use
    Numbers numbers{};
    try {
      numbers = work();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      std::_Exit(1);
    }
    std::_Exit(::write(ends[1], &numbers, sizeof numbers) == sizeof numbers ? 0 : 1);
  }
  ::close(ends[1]);
  Numbers numbers{};
  const bool whole = ::read(ends[0], &numbers, sizeof numbers) == sizeof numbers;
  ::close(ends[0]);
  int status = 0;
  check(::waitpid(child, &status, 0) == child && status == 0 && whole, "the process failed");
  return numbers;
}

// The record of line i (from 0), made from the line alone.
std::string expected_record(int64_t i, const Bookkeeping& run) {
  const PromptRecord prompt = parse_prompt(short_line(i), i + 1);
  if (prompt.fault) return error_record_at_line(error_record(prompt.custom_id, *prompt.fault), i + 1);
  const auto requests = run.language().requests_of(prompt);
  const auto n = static_cast<size_t>(1 + i % 4);
  Completion answer;
  answer.text = std::string(n, 'x');
  answer.tokens.assign(n, kFakeToken);
  const RecordContext context{.custom_id = concat("ask-", i),
                              .endpoint = i % 3 == 1 ? Endpoint::chat_completions : Endpoint::completions,
                              .model = "model",
                              .token_text = {},
                              .n_prompt_tokens = static_cast<int64_t>(requests.value().front().prompt.size())};
  return success_record(context, {answer});
}

TEST_F(BookkeepingTest, AResumeRunsWhatIsLeftAndEveryRecordIsInItsPlace) {
  constexpr int64_t n = kSanitized ? 3000 : 30000;
  const RunOptions run_options = options("input.jsonl", "out");
  write_short_lines(run_options.input, 0, n);
  const Numbers first = in_process([&]() -> Numbers {
    Bookkeeping run(run_options, kReplicas);
    run.open();
    run.work(n / 2);
    return {static_cast<uint64_t>(run.n_done())};
  });
  ASSERT_GE(first[0], static_cast<uint64_t>(n / 2));
  ASSERT_LT(first[0], static_cast<uint64_t>(n));

  Bookkeeping run(run_options, 1);
  run.open();
  const Job& job = run.job();
  EXPECT_EQ(job.epoch, 2);
  EXPECT_EQ(job.journal.done.size(), first[0]);
  EXPECT_EQ(job.plan.n_done + job.plan.n_failed, static_cast<int64_t>(first[0]));
  std::vector<uint32_t> left;
  for (uint32_t i = 0; i < n; ++i)
    if (!job.journal.done.contains(job.input->lines()[i].id)) left.push_back(i);
  EXPECT_EQ(job.plan.to_run == left, true);
  run.work(n);
  EXPECT_EQ(run.n_done(), n - static_cast<int64_t>(first[0]));
  const MergeResult merged = run.finish();
  EXPECT_EQ(merged.n_lines, n);
  EXPECT_EQ(merged.n_failed, n / 100);
  EXPECT_EQ(merged.n_missing, 0);

  std::ifstream completions(run_options.output + "/completions.jsonl", std::ios::binary);
  std::string record;
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_TRUE(std::getline(completions, record)) << "line " << i + 1;
    ASSERT_EQ(record, expected_record(i, run)) << "line " << i + 1;
  }
  EXPECT_FALSE(std::getline(completions, record));
}

TEST_F(BookkeepingTest, ALineTakesLessThan200Bytes) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's memory is not ours";
  // The same with few and with many lines: what buffers and libraries take is in both.
  constexpr int64_t kFew = 50000, kMany = 150000;
  const auto peaks_of = [&](int64_t n) {
    const RunOptions run_options = options(concat("input-", n), concat("out-", n));
    write_short_lines(run_options.input, 0, n);
    const Numbers whole = in_process([&]() -> Numbers {
      Bookkeeping run(run_options, kReplicas);
      run.open();
      run.work(n);
      const uint64_t worked = peak_memory();
      run.finish();
      const uint64_t merged = peak_memory();
      run.write_timings();
      return {worked, merged, peak_memory()};
    });
    const Numbers resumed = in_process([&]() -> Numbers {  // with all that the journal can hold
      write_short_lines(run_options.input, n, n + 1);
      Bookkeeping run(run_options, kReplicas);
      run.open();
      run.work(1);
      run.finish();
      return {peak_memory()};
    });
    return std::array{whole[0], whole[1], resumed[0], whole[2]};
  };
  const auto few = peaks_of(kFew), many = peaks_of(kMany);
  if (few[0] == 0) GTEST_SKIP() << "the system doesn't say what a process takes";
  const char* const names[] = {"run", "merge", "resume and merge", "timings"};
  for (size_t i = 0; i < few.size(); ++i) {
    const double few_bytes = static_cast<double>(few[i]), many_bytes = static_cast<double>(many[i]);
    const double bytes = (many_bytes - few_bytes) / static_cast<double>(kMany - kFew);
    std::printf("%s: %.0f bytes a line (%.1f and %.1f MB)\n", names[i], bytes, few_bytes / 1e6, many_bytes / 1e6);
    RecordProperty(names[i], concat(bytes));
    EXPECT_LT(bytes, i < 3 ? 150 : 200) << names[i];  // for the timings HDF5 keeps texts up to a bound of its own
  }
}

TEST(DoneRecords, FortyBytesARecord) { EXPECT_EQ(sizeof(DoneRecords::Entry), 40u); }

}  // namespace
}  // namespace lockstep
