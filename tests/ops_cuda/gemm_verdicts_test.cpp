// The file of verdicts: what was written comes back, whoever wrote; anything else is nothing.
#include "ops/cuda/gemm_verdicts.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace lockstep {
namespace {

class GemmVerdicts : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep_verdicts_XXXXXX";
    folder = mkdtemp(name);
    setenv("LOCKSTEP_CACHE", (folder / "a" / "b").c_str(), 1);
    path = verdicts_path("NVIDIA H200-cublasLt-13.1.0-driver-13000");
  }
  void TearDown() override {
    unsetenv("LOCKSTEP_CACHE");
    std::filesystem::remove_all(folder);
  }
  void put(const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
  }
  std::filesystem::path folder;
  std::string path;
};

const Verdicts kSome{
    {{28672, 4096, DType::bf16, 8192}, 6}, {{128256, 4096, DType::f32, 16}, 0}, {{4096, 14336, DType::bf16, 512}, 3}};

TEST_F(GemmVerdicts, ComeBack) {
  EXPECT_EQ(read_verdicts(path), Verdicts{});
  write_verdicts(path, kSome);
  EXPECT_EQ(read_verdicts(path), kSome);
  write_verdicts(path, {});
  EXPECT_EQ(read_verdicts(path), Verdicts{});
  write_verdicts(path, kSome);
  const auto files = std::filesystem::directory_iterator(std::filesystem::path(path).parent_path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "something besides the file was left";
}

TEST_F(GemmVerdicts, AreOfOneMachine) {
  EXPECT_NE(verdicts_path("NVIDIA H200-driver-13000"), verdicts_path("NVIDIA H200-driver-13010"));
  const std::string odd = verdicts_path("../../a b\n/c");
  EXPECT_EQ(std::filesystem::path(odd).parent_path(), folder / "a" / "b");
}

TEST_F(GemmVerdicts, OfAnythingElseAreNone) {
  const std::string good = "4096 4096 bf16 512 1\n";
  put(good);
  EXPECT_EQ(read_verdicts(path).size(), 1u);
  for (const std::string bad :
       {"4096 4096 bf16 512", "4096 4096 bf16 512 1 1", "4096 4096 f16 512 1", "4096 4096 bf16 512 -1",
        "4096 4096 bf16 512 1001", "99999999999999999999 4096 bf16 512 1", "4096 4096 bf16 5x 1", "", "\x01\xff", "{}"}) {
    put(good + bad + "\n" + good);
    EXPECT_EQ(read_verdicts(path), Verdicts{}) << "'" << bad << "'";
  }
  put(std::string(size_t{2} << 20, '\n'));
  EXPECT_EQ(read_verdicts(path), Verdicts{}) << "too long";
}

TEST_F(GemmVerdicts, AreNotKeptWhereTheyCannotBe) {
  put("4096 4096 bf16 512 1\n");
  const std::string below = path + "/below";  // a file, not a folder
  write_verdicts(below, kSome);
  EXPECT_EQ(read_verdicts(below), Verdicts{});
  setenv("LOCKSTEP_CACHE", "", 1);
  EXPECT_EQ(verdicts_path("x"), "");
  write_verdicts("", kSome);
  EXPECT_EQ(read_verdicts(""), Verdicts{});
}

TEST_F(GemmVerdicts, LieInTheHomeUnlessToldOtherwise) {
  unsetenv("LOCKSTEP_CACHE");
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const std::string before = xdg == nullptr ? "" : xdg;
  setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(verdicts_path("x"), "/somewhere/lockstep/products-x");
  setenv("XDG_CACHE_HOME", "", 1);
  EXPECT_FALSE(verdicts_path("x").starts_with("lockstep")) << "in the working directory";
  unsetenv("XDG_CACHE_HOME");
  EXPECT_TRUE(verdicts_path("x").ends_with("/.cache/lockstep/products-x") || std::getenv("HOME") == nullptr);
  if (!before.empty()) setenv("XDG_CACHE_HOME", before.c_str(), 1);
}

}  // namespace
}  // namespace lockstep
