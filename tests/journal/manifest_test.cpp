#include "journal/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/journal/fake_job.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::vector<ManifestField> kAsked = {{"model", "llama"}, {"seed", "1"}, {"template", "{% for %}\n\"x\""}};

class ManifestTest : public testing::Test {
 protected:
  std::string message_of(const std::function<void()>& call, ExitCode code = ExitCode::usage) const {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.code, code) << e.what();
      return e.what();
    }
    return "no error";
  }
  Scratch scratch;
  std::string out = scratch / "out";
};

// ---- the output directory ----

TEST_F(ManifestTest, AMissingDirectoryIsMadeWithItsParents) {
  const OutputDirectory made = prepare_output(scratch / "a/b/c/");
  EXPECT_TRUE(made.created);
  EXPECT_GT(made.free_bytes, 0u);
  EXPECT_TRUE(std::filesystem::is_directory(scratch / "a/b/c/journal/epochs"));
  EXPECT_FALSE(prepare_output(scratch / "a/b/c").created);
  EXPECT_TRUE(std::filesystem::is_empty(scratch / "a/b/c/journal/epochs"));  // the probes are gone
}

TEST_F(ManifestTest, AFileOrAPathThroughAFileIsRefused) {
  write_file(scratch / "file", "mine");
  EXPECT_THAT(message_of([&] { prepare_output(scratch / "file"); }), HasSubstr("this is a file"));
  EXPECT_THAT(message_of([&] { prepare_output(scratch / "file/below"); }), HasSubstr("is a file"));
  EXPECT_THAT(message_of([&] { prepare_output(""); }), HasSubstr("empty"));
  EXPECT_EQ(read_file(scratch / "file"), "mine");
}

TEST_F(ManifestTest, ADirectoryThatCannotBeWrittenIsRefusedAtOnce) {
  prepare_output(out);
  ::chmod(scratch.path().c_str(), 0755);
  ::chmod(out.c_str(), 0555);
  const bool root = ::geteuid() == 0;  // may write everywhere, so it is somebody else for a moment
  ASSERT_EQ(::seteuid(root ? 65534 : ::geteuid()), 0);
  const std::string message = message_of([&] { prepare_output(out); }, ExitCode::output_io);
  ASSERT_EQ(::seteuid(root ? 0 : ::geteuid()), 0);
  EXPECT_THAT(message, AllOf(HasSubstr(out), HasSubstr("Permission denied")));
  ::chmod(out.c_str(), 0755);
}

TEST_F(ManifestTest, APseudoFileSystemIsRefused) {
  EXPECT_THAT(message_of([&] { prepare_output("/proc/lockstep-out"); }, ExitCode::output_io), HasSubstr("/proc/lockstep-out"));
}

// ---- fields ----

TEST_F(ManifestTest, ReadsBackWhatWasAsked) {
  prepare_output(out);
  EXPECT_EQ(read_manifest(out), std::nullopt);
  EXPECT_EQ(check_start(out, kAsked, {}), RunStart::fresh);
  begin_run(out, kAsked, RunStart::fresh);
  ASSERT_TRUE(read_manifest(out));
  EXPECT_EQ(read_manifest(out)->fields, kAsked);
  EXPECT_EQ(read_manifest(out)->first_epoch, 1);
  EXPECT_EQ(check_start(out, kAsked, {}), RunStart::resume);
}

TEST_F(ManifestTest, FieldsThatAreNotUtf8CompareEqualToThemselves) {
  prepare_output(out);
  const std::vector<ManifestField> asked = {{"path", "a\xff"}};
  begin_run(out, asked, RunStart::fresh);
  EXPECT_EQ(check_start(out, asked, {}), RunStart::resume);
}

TEST(Manifest, ComparesByName) {
  const Manifest manifest{1, {{"a", "1"}, {"b", "2"}, {"c", "3"}}};
  EXPECT_THAT(compare(manifest, std::vector<ManifestField>{{"c", "3"}, {"a", "1"}, {"b", "2"}}), IsEmpty());
  const auto differences = compare(manifest, std::vector<ManifestField>{{"a", "1"}, {"b", "20"}, {"d", "4"}});
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].name, "b");
  EXPECT_EQ(differences[0].was, "2");
  EXPECT_EQ(differences[0].now, "20");
  EXPECT_EQ(differences[1].name, "d");
  EXPECT_EQ(differences[1].was, std::nullopt);
  EXPECT_EQ(differences[2].name, "c");
  EXPECT_EQ(differences[2].now, std::nullopt);
}

TEST_F(ManifestTest, OtherOptionsAreRefusedByName) {
  prepare_output(out);
  begin_run(out, kAsked, RunStart::fresh);
  auto asked = kAsked;
  asked[1].value = "2";
  asked[2].value = std::string(500, 'x');
  const std::string message = message_of([&] { check_start(out, asked, {}); });
  EXPECT_THAT(message, AllOf(HasSubstr("seed (was '1', now '2')"), HasSubstr("template (was"), HasSubstr("--overwrite"),
                             Not(HasSubstr("model"))));
  EXPECT_LT(message.size(), 500u);
  EXPECT_EQ(check_start(out, asked, {.overwrite = true}), RunStart::anew);
  EXPECT_EQ(read_manifest(out)->fields, kAsked);  // nothing changed yet
  EXPECT_THAT(message_of([&] { check_start(out, kAsked, {.resume = false}); }), HasSubstr("holds a run already"));
}

TEST_F(ManifestTest, ResultsOfSomebodyElseAreNotOverwritten) {
  prepare_output(out);
  write_file(out + "/completions.jsonl", "precious\n");
  EXPECT_THAT(message_of([&] { check_start(out, kAsked, {}); }), AllOf(HasSubstr("completions.jsonl"), HasSubstr("manifest")));
  EXPECT_EQ(check_start(out, kAsked, {.overwrite = true}), RunStart::anew);
}

TEST_F(ManifestTest, ADamagedManifestIsRefused) {
  prepare_output(out);
  for (const char* bad : {"", "{", "[]", "{}", R"({"format":2})", R"({"format":1,"first_epoch":0,"fields":{}})",
                          R"({"format":1,"first_epoch":1,"fields":{"a":1}})", R"({"format":1,"first_epoch":-1,"fields":{}})"}) {
    write_file(manifest_path(out), bad);
    EXPECT_THAT(message_of([&] { check_start(out, kAsked, {}); }), HasSubstr("manifest.json: ")) << bad;
    EXPECT_EQ(check_start(out, kAsked, {.overwrite = true}), RunStart::anew);
  }
}

// ---- starting anew ----

TEST_F(ManifestTest, AnewRemovesOldResultsAndKeepsCountingEpochs) {
  run_fake_job(out, {.n_lines = 5});
  ASSERT_TRUE(std::filesystem::exists(out + "/completions.jsonl"));
  const std::vector<ManifestField> other = {{"model", "fake"}, {"seed", "2"}};
  const RunStart start = check_start(out, other, {.overwrite = true});
  EXPECT_TRUE(std::filesystem::exists(out + "/completions.jsonl"));
  begin_run(out, other, start);
  EXPECT_FALSE(std::filesystem::exists(out + "/completions.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(out + "/errors.jsonl"));
  EXPECT_THAT(list_shards(out), IsEmpty());
  const JournalState state = recover_journal(out);
  EXPECT_TRUE(state.done.empty());
  EXPECT_EQ(state.first_epoch, 2);
  EXPECT_EQ(open_epoch(out, state, "{}"), 2);
  EXPECT_EQ(check_start(out, other, {}), RunStart::resume);
}

TEST_F(ManifestTest, AnEpochThatHadNoShardYetIsOverwrittenToo) {
  prepare_output(out);
  begin_run(out, kAsked, RunStart::fresh);
  const int64_t old = open_epoch(out, recover_journal(out), "{}");
  begin_run(out, kAsked, RunStart::anew);
  JournalWriter late(out, old, 0);  // its process lives on
  late.append(entry_at(0));
  late.commit();
  EXPECT_EQ(recover_journal(out).first_epoch, 2);
  EXPECT_TRUE(recover_journal(out).done.empty());
}

TEST_F(ManifestTest, ShardsOfTheOverwrittenRunThatACrashLeftDoNotCount) {
  run_fake_job(out, {.n_lines = 5});
  const std::string left = shard_path(out, {1, 0, 0}), bytes = read_file(left);
  const std::vector<ManifestField> other = {{"model", "fake"}, {"seed", "2"}};
  begin_run(out, other, RunStart::anew);
  write_file(left, bytes);
  EXPECT_TRUE(recover_journal(out).done.empty());
  begin_run(out, other, check_start(out, other, {}));
  EXPECT_FALSE(std::filesystem::exists(left));
}

// ---- which lines run ----

class ResumeTest : public ManifestTest {
 protected:
  // A run over `n` lines that ended after `done` of them, in order.
  JournalState state_after(int done) {
    prepare_output(out);
    JournalWriter w(out, open_epoch(out, recover_journal(out), "{}"), 0);
    for (int i = 0; i < done; ++i) w.append(entry_at(i));
    w.commit();
    return recover_journal(out);
  }
};

TEST_F(ResumeTest, TheRestRuns) {
  const ResumePlan plan = plan_resume(state_after(8), lines_up_to(10), false);
  EXPECT_THAT(plan.to_run, ElementsAre(8, 9));
  EXPECT_EQ(plan.n_done, 7);
  EXPECT_EQ(plan.n_failed, 1);
  EXPECT_FALSE(plan.finished);
}

TEST_F(ResumeTest, FailedLinesStayUnlessRetried) {
  const JournalState state = state_after(8);
  EXPECT_TRUE(plan_resume(state, lines_up_to(8), false).finished);
  const ResumePlan plan = plan_resume(state, lines_up_to(8), true);
  EXPECT_THAT(plan.to_run, ElementsAre(3));
  EXPECT_EQ(plan.n_done, 7);
  EXPECT_EQ(plan.n_failed, 0);
  EXPECT_FALSE(plan.finished);
}

TEST_F(ResumeTest, ReorderedAndAppendedLinesAreFine) {
  auto lines = lines_up_to(10);
  std::reverse(lines.begin(), lines.end());
  EXPECT_THAT(plan_resume(state_after(8), lines, false).to_run, ElementsAre(0, 1));
}

TEST_F(ResumeTest, EditedLinesAreNamed) {
  const JournalState state = state_after(8);
  auto lines = lines_up_to(10);
  lines[2].content ^= 1;
  lines[9].content ^= 1;  // not done yet: no matter
  EXPECT_THAT(message_of([&] { plan_resume(state, lines, false); }),
              AllOf(HasSubstr("1 edited: 'ask-2' (line 3)"), Not(HasSubstr("removed"))));
  for (auto& line : lines) line.content = 0;
  EXPECT_THAT(message_of([&] { plan_resume(state, lines, false); }),
              AllOf(HasSubstr("8 edited: "), HasSubstr("'ask-4' (line 5), ..."), Not(HasSubstr("ask-5"))));
}

TEST_F(ResumeTest, RemovedLinesAreNamed) {
  const JournalState state = state_after(8);
  auto lines = lines_up_to(10);
  lines.erase(lines.begin() + 1, lines.begin() + 3);
  EXPECT_THAT(message_of([&] { plan_resume(state, lines, false); }),
              AllOf(HasSubstr("2 removed: 'ask-1', 'ask-2'"), Not(HasSubstr("edited"))));
  EXPECT_THAT(message_of([&] { plan_resume(state, {}, false); }),
              HasSubstr("8 removed: 'ask-0', 'ask-1', 'ask-2', 'ask-3', 'ask-4', ..."));
  lines[0].content ^= 1;
  EXPECT_THAT(message_of([&] { plan_resume(state, lines, false); }), AllOf(HasSubstr("1 edited"), HasSubstr("2 removed")));
}

}  // namespace
}  // namespace lockstep
