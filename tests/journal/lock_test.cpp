#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "journal/directory_lock.h"
#include "tests/journal/fake_job.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class LockTest : public testing::Test {
 protected:
  LockTest() { prepare_output(out); }

  std::string message_of(const std::function<void()>& call) const {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.code, ExitCode::usage);
      return e.what();
    }
    return "no error";
  }
  std::string refusal(DirectoryLockOptions options = {}) const {
    return message_of([&] { DirectoryLock lock(out, options); });
  }
  // A lock file that somebody else left, `age_s` ago.
  void write_lock(const nlohmann::json& holder, int age_s, const std::string& name = "lock") const {
    write_raw(holder.dump() + "\n", age_s, name);
  }
  void write_raw(const std::string& text, int age_s, const std::string& name = "lock") const {
    write_file(journal_path(out) + "/" + name, text);
    const timespec times[2] = {{::time(nullptr) - age_s, 0}, {::time(nullptr) - age_s, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (journal_path(out) + "/" + name).c_str(), times, 0), 0);
  }
  nlohmann::json own() const {  // as this process writes it
    DirectoryLock lock(out);
    return nlohmann::json::parse(read_file(path));
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(journal_path(out))) names.insert(entry.path().filename());
    names.erase("epochs");
    return names;
  }
  // A process that takes the lock and then does as it's told.
  pid_t child_with_lock(bool exits) const {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      DirectoryLock lock(out);
      EXPECT_EQ(::write(ends[1], "x", 1), 1);
      if (exits) ::_exit(0);  // no destructor, as after a kill
      for (;;) ::pause();
    }
    char held;
    EXPECT_EQ(::read(ends[0], &held, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
    return child;
  }

  Scratch scratch;
  std::string out = scratch / "out", path = out + "/journal/lock";
  nlohmann::json elsewhere = {{"host", "node7"},
                              {"pid", 4711},
                              {"process_start", 5},
                              {"machine", "another"},
                              {"since", "2026-01-02T03:04:05Z"},
                              {"token", "0123456789abcdef"}};
};

TEST_F(LockTest, HeldWhileTheObjectLives) {
  {
    DirectoryLock lock(out);
    EXPECT_EQ(files(), (std::set<std::string>{"lock"}));
    EXPECT_EQ(lock.replaced(), "");
    EXPECT_THAT(refusal(),
                AllOf(HasSubstr(path), HasSubstr(concat("process ", ::getpid(), " on this host")), HasSubstr("since 20")));
    EXPECT_THAT(refusal({.takeover = true}), HasSubstr("in use"));  // it is known to be alive
  }
  EXPECT_EQ(files(), std::set<std::string>{});
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(LockTest, TheSecondProcessIsRefusedAndTheFirstUnharmed) {
  const pid_t child = child_with_lock(false);
  const std::string before = read_file(path);
  EXPECT_THAT(refusal(), HasSubstr(concat("process ", child)));
  EXPECT_EQ(read_file(path), before);
  ::kill(child, SIGKILL);
  // Not yet waited for: a zombie holds nothing.
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  {
    DirectoryLock lock(out);
    EXPECT_THAT(lock.replaced(), HasSubstr(concat("process ", child)));
  }
  EXPECT_EQ(files(), std::set<std::string>{});
  ::waitpid(child, nullptr, 0);
}

TEST_F(LockTest, AKilledHolderNeedsNoHandWork) {
  const pid_t child = child_with_lock(true);
  ::waitpid(child, nullptr, 0);
  ASSERT_EQ(files(), (std::set<std::string>{"lock"}));
  EXPECT_EQ(refusal(), "no error");
  EXPECT_EQ(files(), std::set<std::string>{});
}

TEST_F(LockTest, AReusedPidIsAnotherProcess) {
  nlohmann::json holder = own();
  write_lock(holder, 0);
  EXPECT_THAT(refusal(), HasSubstr("in use"));  // this process, to the tick
  holder["process_start"] = holder["process_start"].get<uint64_t>() - 1;
  write_lock(holder, 0);
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(LockTest, AnotherHostIsDeadAfterFiveSilentMinutes) {
  write_lock(elsewhere, 200);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("process 4711 on node7 since 2026-01-02T03:04:05Z"), HasSubstr("--takeover"),
                               HasSubstr("dead after 300 s")));
  EXPECT_EQ(nlohmann::json::parse(read_file(path)), elsewhere);
  write_lock(elsewhere, 400);
  EXPECT_EQ(refusal(), "no error");
  write_lock(elsewhere, 0);
  EXPECT_EQ(refusal({.takeover = true}), "no error");
  EXPECT_EQ(files(), std::set<std::string>{});
}

TEST_F(LockTest, AUnreadableLockIsAHolderNobodyKnows) {
  for (const std::string text : {"", "{", "[]", R"({"host":1})", "\xff\xff",
                                 R"({"host":"a","pid":1,"process_start":1,"machine":"","since":"","token":"../../x"})"}) {
    write_raw(text, 10);
    EXPECT_THAT(refusal(), HasSubstr("in use by process")) << text;
    write_raw(text, 400);
    EXPECT_EQ(refusal(), "no error") << text;
    EXPECT_EQ(files(), std::set<std::string>{});
  }
}

TEST_F(LockTest, AClaimCountsAsTheHolder) {
  write_lock(elsewhere, 400);
  nlohmann::json claim = elsewhere;
  claim["host"] = "node8";
  claim["token"] = "00000000000000aa";
  write_lock(claim, 10, "lock.after-0123456789abcdef");  // node8 is taking over from node7, or died doing so
  EXPECT_THAT(refusal(), HasSubstr("node8"));
  write_lock(claim, 400, "lock.after-0123456789abcdef");
  EXPECT_EQ(refusal(), "no error");
  EXPECT_EQ(files(), std::set<std::string>{});
}

TEST_F(LockTest, TheHeartbeatShowsInTheFileAndSeesATakeover) {
  DirectoryLock lock(out, {.heartbeat_s = 0});
  const std::string text = read_file(path);
  const auto age = [&] {
    struct stat s {};
    EXPECT_EQ(::stat(path.c_str(), &s), 0);
    return ::time(nullptr) - s.st_mtim.tv_sec;
  };
  write_raw(text, 1000);
  EXPECT_GE(age(), 1000);
  lock.heartbeat();
  EXPECT_LT(age(), 1000);

  std::filesystem::remove(path);  // somebody tidied up
  lock.heartbeat();
  EXPECT_EQ(read_file(path), text);

  write_lock(elsewhere, 0);
  EXPECT_THAT(message_of([&] { lock.heartbeat(); }), HasSubstr("taken over by process 4711 on node7"));
}

TEST_F(LockTest, ALockThatWasTakenOverIsNotReleased) {
  {
    DirectoryLock lock(out);
    write_lock(elsewhere, 0);
  }
  EXPECT_EQ(nlohmann::json::parse(read_file(path)), elsewhere);
}

// Many processes want a stale lock at the same moment: at most one holds it at any time.
TEST_F(LockTest, OfManyOneTakesAStaleLock) {
  for (int round = 0; round < 10; ++round) {
    write_lock(elsewhere, 400);
    std::vector<pid_t> children;
    for (int c = 0; c < 6; ++c) {
      const pid_t child = ::fork();
      if (child == 0) {
        int got = 0;
        try {
          DirectoryLock lock(out);
          const std::string inside = out + "/inside";
          const int fd = ::open(inside.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);  // fails if two are in here
          got = fd >= 0 ? 1 : 2;
          ::usleep(2000);
          ::unlink(inside.c_str());
        } catch (const Error&) {
        }
        ::_exit(got);
      }
      children.push_back(child);
    }
    int n_held = 0;
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status));
      EXPECT_NE(WEXITSTATUS(status), 2) << "two held the lock at once";
      n_held += WEXITSTATUS(status) == 1;
    }
    EXPECT_GE(n_held, 1);
    EXPECT_EQ(files(), std::set<std::string>{});
  }
}

}  // namespace
}  // namespace lockstep
