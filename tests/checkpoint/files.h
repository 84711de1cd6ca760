// Directories and files for tests of readers: written byte by byte, damaged on purpose, gone at scope end.
//   TempDirectory d; d.write("config.json", "{}"); EXPECT_THAT(open_error(d.path()), HasSubstr("model_type"));
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"

namespace lockstep {

class TempDirectory {
 public:
  TempDirectory() {
    // In memory where possible: thousands of damaged copies are written, and ext4 syncs each file that is written anew.
    const auto base =
        std::filesystem::exists("/dev/shm") ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
    std::string pattern = (base / "lockstep.XXXXXX").string();
    if (!::mkdtemp(pattern.data())) ADD_FAILURE() << "no temporary directory";
    path_ = pattern;
  }
  ~TempDirectory() { std::filesystem::remove_all(path_); }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// What the Error (unreadable) says that opening throws; "" and a failed test where it is something else.
inline std::string open_error(const std::string& path) {
  try {
    Checkpoint::open(path);
    ADD_FAILURE() << path << " opens";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, ExitCode::unreadable) << e.what();
    return e.what();
  }
  return "";
}

inline std::vector<float> read_all(const Checkpoint& c, const std::string& name) {
  const auto [rows, cols] = c.shape(name);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  c.read_rows(name, {0, rows}, values.data());
  return values;
}

}  // namespace lockstep
