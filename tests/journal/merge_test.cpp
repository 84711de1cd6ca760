#include "journal/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/journal/fake_job.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class MergeTest : public testing::Test {
 protected:
  MergeTest() { prepare_output(out); }
  std::string message_of(const std::function<void()>& call) const {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.code, ExitCode::output_io) << e.what();
      return e.what();
    }
    return "no error";
  }
  void write(const std::string& to, int writer, const std::vector<int>& lines) {
    if (writer == 0) open_epoch(to, recover_journal(to), "{}");
    JournalWriter w(to, recover_journal(to).last_epoch, writer);
    for (const int i : lines) w.append(entry_at(i));
    w.commit();
  }
  std::string completions() const { return read_file(out + "/completions.jsonl"); }
  std::string errors() const { return read_file(out + "/errors.jsonl"); }
  Scratch scratch;
  std::string out = scratch / "out";
};

TEST_F(MergeTest, RecordsGoOutInInputOrder) {
  JournalWriter w(out, open_epoch(out, recover_journal(out), "{}"), 0);
  w.append({line_at(2).id, line_at(2).content, false, R"({"n":2})"});
  w.append({line_at(0).id, line_at(0).content, false, R"({"n":0})"});
  w.append({line_at(1).id, line_at(1).content, true,
            R"({"id":"r","custom_id":"a","response":null,"error":{"code":"invalid_json","message":"no object"}})"});
  w.commit();
  const MergeResult r = merge_outputs(out, lines_up_to(3), recover_journal(out), false);
  const std::string failed =
      R"({"id":"r","custom_id":"a","response":null,"error":{"code":"invalid_json","message":"line 2: no object"}})";
  EXPECT_EQ(completions(), "{\"n\":0}\n" + failed + "\n{\"n\":2}\n");
  EXPECT_EQ(errors(), failed + "\n");
  EXPECT_EQ(r.n_lines, 3);
  EXPECT_EQ(r.n_answered, 2);
  EXPECT_EQ(r.n_failed, 1);
  EXPECT_EQ(r.n_missing, 0);
  EXPECT_EQ(r.bytes, completions().size());
  EXPECT_EQ(r.digest, digest128(completions()));
  EXPECT_FALSE(std::filesystem::exists(out + "/completions.jsonl.tmp"));
}

TEST_F(MergeTest, AgainGivesTheSameAndReplacesWhatIsThere) {
  write(out, 0, {4, 2, 0});
  write(out, 1, {3, 1});
  const auto first = merge_outputs(out, lines_up_to(5), recover_journal(out), false);
  EXPECT_EQ(completions(), expected_completions(5));
  write_file(out + "/completions.jsonl", "damaged");
  write_file(out + "/completions.jsonl.tmp", std::string(10000, 'x'));  // of a merge that was killed
  const auto second = merge_outputs(out, lines_up_to(5), recover_journal(out), false);
  EXPECT_EQ(completions(), expected_completions(5));
  EXPECT_EQ(first.digest, second.digest);
}

TEST_F(MergeTest, EmptyInputGivesEmptyFiles) {
  const MergeResult r = merge_outputs(out, {}, recover_journal(out), false);
  EXPECT_EQ(r.n_lines, 0);
  EXPECT_TRUE(std::filesystem::exists(out + "/completions.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(out + "/errors.jsonl"));
  EXPECT_EQ(completions(), "");
}

TEST_F(MergeTest, AMissingRecordStopsItUnlessPartial) {
  write(out, 0, {0, 2});
  write_file(out + "/completions.jsonl", "old");
  EXPECT_THAT(message_of([&] { merge_outputs(out, lines_up_to(3), recover_journal(out), false); }),
              HasSubstr("input line 2 has no record"));
  EXPECT_EQ(completions(), "old");
  EXPECT_FALSE(std::filesystem::exists(out + "/completions.jsonl.tmp"));
  const MergeResult r = merge_outputs(out, lines_up_to(3), recover_journal(out), true);
  EXPECT_EQ(r.n_missing, 1);
  EXPECT_EQ(completions(), entry_at(0).record + "\n" + entry_at(2).record + "\n");
}

TEST_F(MergeTest, ARecordOfAnotherContentStopsIt) {
  write(out, 0, {0, 1, 2});
  auto lines = lines_up_to(3);
  lines[1].content ^= 1;
  EXPECT_THAT(message_of([&] { merge_outputs(out, lines, recover_journal(out), true); }), HasSubstr("input line 2"));
}

TEST_F(MergeTest, DamageSinceRecoveryStopsIt) {
  write(out, 0, {0, 1, 2});
  const JournalState state = recover_journal(out);
  const std::string path = shard_path(out, {1, 0, 0}), bytes = read_file(path);
  for (const size_t at : {size_t{0}, bytes.size() / 2, bytes.size() - 2}) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write_file(path, bad);
    EXPECT_THAT(message_of([&] { merge_outputs(out, lines_up_to(3), state, false); }),
                AllOf(HasSubstr("e0001-w000.jsonl"), HasSubstr("no longer what was recovered")));
    write_file(path, bytes.substr(0, at));
    EXPECT_THAT(message_of([&] { merge_outputs(out, lines_up_to(3), state, false); }), HasSubstr("e0001-w000.jsonl"));
  }
  EXPECT_FALSE(std::filesystem::exists(out + "/completions.jsonl"));
}

TEST_F(MergeTest, RecordsLargerThanAWindowAndManyOfThem) {
  const int64_t epoch = open_epoch(out, recover_journal(out), "{}");
  const auto size_of = [](int i) { return i == 3 ? size_t{70} << 20 : i == 50 ? size_t{5} << 20 : size_t(i % 10) * 40000 + 2; };
  std::string expected;
  for (int i = 0; i < 400; ++i) expected += std::string(size_of(i), static_cast<char>('a' + i % 26)) + "\n";
  for (int writer = 0; writer < 3; ++writer) {
    JournalWriter w(out, epoch, writer);
    for (int i = 399; i >= 0; --i)
      if (i * 7 % 3 == writer)
        w.append({line_at(i).id, line_at(i).content, false, std::string(size_of(i), static_cast<char>('a' + i % 26))});
    w.commit();
  }
  const MergeResult r = merge_outputs(out, lines_up_to(400), recover_journal(out), false);
  EXPECT_EQ(r.bytes, expected.size());
  EXPECT_EQ(r.digest, digest128(expected));
  EXPECT_EQ(completions() == expected, true);
}

TEST_F(MergeTest, SeveralDirectoriesIntoOne) {
  const std::string a = scratch / "a", b = scratch / "b";
  prepare_output(a);
  prepare_output(b);
  write(a, 0, {0, 2, 4, 6});
  write(b, 0, {1, 3, 5, 2});
  const std::vector<JournalState> states = {recover_journal(a), recover_journal(b)};
  const MergeResult r = merge_outputs(out, lines_up_to(7), states, false);
  EXPECT_EQ(completions(), expected_completions(7));
  EXPECT_EQ(r.n_failed, 1);
  // A failure in the first gives way to an answer in the second.
  JournalWriter w(a, open_epoch(a, states[0], "{}"), 0);
  w.append({line_at(7).id, line_at(7).content, true, R"({"error":{"message":""}})"});
  w.commit();
  write(b, 0, {7});
  const std::vector<JournalState> again = {recover_journal(a), recover_journal(b)};
  merge_outputs(out, lines_up_to(8), again, false);
  EXPECT_EQ(completions(), expected_completions(8));
}

TEST_F(MergeTest, ShardsThatShareNoLine) {
  std::vector<JournalState> states;
  for (int shard = 0; shard < 3; ++shard) {
    const std::string dir = scratch / concat("shard", shard);
    prepare_output(dir);
    std::vector<int> lines;
    for (int i = shard; i < 20; i += 3)
      if (i != 8) lines.push_back(i);
    write(dir, 0, lines);
    states.push_back(recover_journal(dir));
  }
  EXPECT_THAT(message_of([&] { merge_outputs(out, lines_up_to(20), states, false, true); }), HasSubstr("line 9 has no record"));
  EXPECT_EQ(merge_outputs(out, lines_up_to(20), states, true, true).n_missing, 1);
  write(scratch / "shard2", 1, {8});
  states[2] = recover_journal(scratch / "shard2");
  merge_outputs(out, lines_up_to(20), states, false, true);
  EXPECT_EQ(completions(), expected_completions(20));
}

TEST_F(MergeTest, AWholeFakeJob) {
  run_fake_job(out, {.n_lines = 60, .n_writers = 3, .seed = 5});
  EXPECT_EQ(completions(), expected_completions(60));
  EXPECT_EQ(recover_journal(out).last_epoch, 1);
  run_fake_job(out, {.n_lines = 60, .n_writers = 3, .seed = 6});  // nothing to do
  EXPECT_EQ(recover_journal(out).last_epoch, 1);
  run_fake_job(out, {.n_lines = 70, .n_writers = 1, .seed = 6});  // ten were appended
  EXPECT_EQ(completions(), expected_completions(70));
  EXPECT_EQ(recover_journal(out).n_duplicates, 0);
}

}  // namespace
}  // namespace lockstep
