#include "base/durable_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <set>

#include "base/error.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DurableFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "lockstep-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) names.insert(entry.path().filename());
    return names;
  }
  std::string message_of(const std::function<void()>& call, ExitCode code = ExitCode::output_io) const {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.code, code);
      return e.what();
    }
    return "no error";
  }
  std::string dir_;
};

TEST_F(DurableFile, AtomicWriteReplacesTheWholeFile) {
  const std::string path = dir_ + "/a";
  atomic_write(path, "a long first text");
  atomic_write(path, "short");
  EXPECT_EQ(read_small_file(path), "short");
  EXPECT_EQ(files(), (std::set<std::string>{"a"}));
}

TEST_F(DurableFile, WithoutCommitTheOldFileStays) {
  const std::string path = dir_ + "/a";
  atomic_write(path, "old");
  {
    AtomicFile file(path);
    file.write("half of the new");
    file.sync();
  }
  EXPECT_EQ(read_small_file(path), "old");
  EXPECT_EQ(files(), (std::set<std::string>{"a"}));
}

TEST_F(DurableFile, OneOfManyCreatesAName) {
  const std::string path = dir_ + "/a";
  EXPECT_TRUE(create_exclusive(path, "first"));
  EXPECT_FALSE(create_exclusive(path, "second"));
  EXPECT_EQ(read_small_file(path), "first");
  EXPECT_EQ(files(), (std::set<std::string>{"a"}));
}

TEST_F(DurableFile, ErrorsNamePathOperationAndReason) {
  EXPECT_THAT(message_of([&] { atomic_write(dir_ + "/none/a", "x"); }),
              AllOf(HasSubstr("/none/a"), HasSubstr("open"), HasSubstr("No such file")));
  EXPECT_THAT(message_of([&] { fsync_directory(dir_ + "/none"); }), AllOf(HasSubstr("/none"), HasSubstr("No such file")));
  std::filesystem::create_directory(dir_ + "/taken");
  EXPECT_THAT(message_of([&] { atomic_write(dir_ + "/taken", "x"); }), AllOf(HasSubstr("/taken"), HasSubstr("rename")));
  EXPECT_EQ(files(), (std::set<std::string>{"taken"}));
  const FileHandle full(::open("/dev/full", O_WRONLY));
  if (full.get() < 0) GTEST_SKIP() << "no /dev/full";
  EXPECT_THAT(message_of([&] { write_all(full.get(), "x", "/dev/full"); }),
              AllOf(HasSubstr("/dev/full"), HasSubstr("write"), HasSubstr("No space left")));
}

TEST_F(DurableFile, SmallFilesAreReadWholeOrRefused) {
  EXPECT_EQ(read_small_file(dir_ + "/none"), std::nullopt);
  atomic_write(dir_ + "/a", std::string(10000, 'a'));
  EXPECT_EQ(read_small_file(dir_ + "/a"), std::string(10000, 'a'));
  EXPECT_EQ(read_small_file(dir_ + "/a", 10000), std::string(10000, 'a'));
  EXPECT_THAT(message_of([&] { read_small_file(dir_ + "/a", 9999); }), HasSubstr("longer than 9999"));
}

TEST_F(DurableFile, ParentsOfPaths) {
  EXPECT_EQ(parent_of("a/b"), "a");
  EXPECT_EQ(parent_of("a/b/"), "a");
  EXPECT_EQ(parent_of("b"), ".");
  EXPECT_EQ(parent_of("b/"), ".");
  EXPECT_EQ(parent_of("/b"), "/");
}

TEST_F(DurableFile, TokensDiffer) {
  std::set<std::string> tokens;
  for (int i = 0; i < 1000; ++i) tokens.insert(random_token());
  EXPECT_EQ(tokens.size(), 1000u);
  EXPECT_EQ(tokens.begin()->size(), 16u);
}

}  // namespace
}  // namespace lockstep
