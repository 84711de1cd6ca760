// The scan of the input: lines, encodings, duplicates, and reading lines again.
#include "journal/input_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "journal/json_line.h"
#include "journal/prompt_reader.h"

namespace lockstep {
namespace {

class InputFileTest : public testing::Test {
 protected:
  InputFileTest() {
    std::string name = testing::TempDir() + "/input_XXXXXX";
    directory_ = ::mkdtemp(name.data());
  }
  ~InputFileTest() override { std::filesystem::remove_all(directory_); }

  std::string write(std::string_view bytes, const std::string& name = "in.jsonl") const {
    std::ofstream(directory_ + "/" + name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return directory_ + "/" + name;
  }
  InputFile opened(std::string_view bytes, int64_t limit = 0) const { return InputFile::open(write(bytes), limit); }

  static std::string error_of(const std::string& path, ExitCode& code) {
    try {
      InputFile::open(path, 0);
    } catch (const Error& e) {
      code = e.code;
      return e.what();
    }
    return "";
  }
  // The message without its directory.
  std::string refusal(std::string_view bytes, ExitCode expected = ExitCode::unreadable) const {
    ExitCode code = ExitCode::done;
    const std::string what = error_of(write(bytes), code);
    if (what.empty()) return what;
    EXPECT_EQ(code, expected) << what;
    EXPECT_TRUE(what.starts_with(directory_));
    return what.substr(directory_.size() + 1);
  }

  std::string directory_;
};

std::vector<std::string> texts(const InputFile& input) {
  std::vector<std::string> out;
  for (const InputLine& line : input.lines()) out.push_back(std::to_string(line.line) + " " + input.read(line));
  return out;
}

using Texts = std::vector<std::string>;
const std::string kA = R"({"prompt":"a"})", kB = R"({"prompt":"b"})", kC = R"({"prompt":"c"})";

TEST_F(InputFileTest, ThreeLines) {
  const InputFile input = opened(kA + "\n" + kB + "\n" + kC + "\n");
  EXPECT_EQ(texts(input), (Texts{"1 " + kA, "2 " + kB, "3 " + kC}));
  const InputLine& second = input.lines()[1];
  EXPECT_EQ(second.offset, kA.size() + 1);
  EXPECT_EQ(second.length, kB.size());
  EXPECT_EQ(second.id, digest128("line-2"));
  EXPECT_EQ(second.content, hash64(kB));
  EXPECT_EQ(second.cost, 1u + 16u);
  EXPECT_EQ(second.n_answers, 1u);
  EXPECT_EQ(second.max_tokens, 16u);
  static_assert(sizeof(InputLine) == 72);
}

TEST_F(InputFileTest, EditorsVariantsGiveTheSameLines) {
  const InputFile plain = opened(kA + "\n" + kB + "\n");
  for (const std::string& bytes :
       {"\xEF\xBB\xBF" + kA + "\n" + kB + "\n", kA + "\r\n" + kB + "\r\n", kA + "\n" + kB, kA + "  \n\t" + kB + " \r"}) {
    const InputFile other = opened(bytes);
    ASSERT_EQ(other.lines().size(), 2u) << bytes;
    EXPECT_EQ(other.digest(), plain.digest()) << bytes;
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(other.lines()[i].content, plain.lines()[i].content) << bytes;
      EXPECT_EQ(other.lines()[i].id, plain.lines()[i].id) << bytes;
      EXPECT_FALSE(parse_prompt(other.read(other.lines()[i]), 1).fault) << bytes;
    }
  }
}

TEST_F(InputFileTest, BlankLinesAreLeftOutButCounted) {
  EXPECT_EQ(texts(opened("\n" + kA + "\n\r\n \t \n\n" + kB)), (Texts{"2 " + kA, "6 " + kB}));
  EXPECT_TRUE(opened("").lines().empty());
  EXPECT_TRUE(opened("\n\r\n  ").lines().empty());
  EXPECT_TRUE(opened("\xEF\xBB\xBF").lines().empty());
}

TEST_F(InputFileTest, OnlyLfEndsALine) {
  const std::string text =
      "{\"prompt\":\"a\xE2\x80\xA8"
      "b\xC2\x85"
      "c\"}";
  EXPECT_EQ(texts(opened(text + "\v\r" + text)), (Texts{"1 " + text + "\v\r" + text}));
  EXPECT_EQ(texts(opened(text + "\n")), (Texts{"1 " + text}));
}

TEST_F(InputFileTest, FaultyLinesAreLinesLikeOthers) {
  const std::string bad = R"({"custom_id":"k","prompt":"x")";
  const InputFile input = opened(kA + "\n" + bad + "\n\xFF\xFF\n[1]\n" + kB + "\n" + std::string(3, '\0') + "\n");
  ASSERT_EQ(input.lines().size(), 6u);
  EXPECT_EQ(input.lines()[1].id, digest128("line-2"));
  EXPECT_EQ(input.lines()[5].line, 6);
}

TEST_F(InputFileTest, ALineThatMovesKeepsItsContent) {
  const std::string a = R"({"id":"a","prompt":"a"})";
  const InputFile first = opened(a + "\n" + kB), second = opened(kB + "\n\n " + a);
  EXPECT_EQ(first.lines()[0].content, second.lines()[1].content);
  EXPECT_EQ(first.lines()[0].id, second.lines()[1].id);
  EXPECT_NE(first.lines()[0].content, first.lines()[1].content);
  EXPECT_NE(first.digest(), second.digest());
}

TEST_F(InputFileTest, LimitTakesTheFirstRequests) {
  const std::string twice = R"({"id":"d","prompt":"x"})";
  const InputFile input = opened("\n" + kA + "\n\n" + twice + "\n" + twice, 2);
  EXPECT_EQ(texts(input), (Texts{"2 " + kA, "4 " + twice}));  // what lies behind is not read
}

TEST_F(InputFileTest, AShardIsEveryNthRequest) {
  const std::string bytes =
      "{\"prompt\":\"a\"}\n\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\"}\n\n\n{\"prompt\":\"d\"}\n{\"prompt\":\"e\"}\n";
  const auto shard = [&](int64_t i, int64_t n) {
    InputFile input = opened(bytes);
    input.keep_shard(i, n);
    return texts(input);
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(shard(1, 3), (Texts{R"(1 {"prompt":"a"})", R"(7 {"prompt":"d"})"}));  // with the lines' own numbers
  EXPECT_EQ(shard(2, 3), (Texts{R"(3 {"prompt":"b"})", R"(8 {"prompt":"e"})"}));
  EXPECT_EQ(shard(0, 3), (Texts{R"(4 {"prompt":"c"})"}));
  EXPECT_EQ(shard(0, 1).size(), 5u);
  EXPECT_EQ(shard(0, 7).size(), 0u);
}

TEST_F(InputFileTest, DuplicatesAreRefusedWithBothLines) {
  const auto line = [](const std::string& id) { return R"({"custom_id":")" + id + R"(","prompt":"x"})" + "\n"; };
  EXPECT_EQ(refusal(line("a") + line("dup") + "\n" + line("b") + line("dup"), ExitCode::usage),
            "in.jsonl: a custom_id may be used once: 'dup' on lines 2 and 5");
  EXPECT_EQ(refusal(line("x") + line("y") + line("y") + line("x") + line("x"), ExitCode::usage),
            "in.jsonl: a custom_id may be used once: 'y' on lines 2 and 3, 'x' on lines 1 and 4, 'x' on lines 4 and 5");
  EXPECT_EQ(refusal(line("line-2") + kB, ExitCode::usage), "in.jsonl: a custom_id may be used once: 'line-2' on lines 1 and 2");
  std::string many;
  for (int i = 0; i < 9; ++i) many += line("m");
  EXPECT_EQ(refusal(many, ExitCode::usage),
            "in.jsonl: a custom_id may be used once: 'm' on lines 1 and 2, 'm' on lines 2 and 3, 'm' on lines 3 and 4, "
            "'m' on lines 4 and 5, 'm' on lines 5 and 6, and 3 more");
  EXPECT_EQ(refusal(line("a") + R"({"id":"\u0061","prompt":"x"})", ExitCode::usage),
            "in.jsonl: a custom_id may be used once: 'a' on lines 1 and 2");
}

TEST_F(InputFileTest, OtherEncodingsAreRefusedByName) {
  const auto utf16 = [](std::string_view ascii, bool big) {
    std::string out;
    for (const char c : ascii) out += big ? std::string{'\0', c} : std::string{c, '\0'};
    return out;
  };
  const std::string end = "; the input is plain UTF-8 JSONL";
  EXPECT_EQ(refusal("\xFF\xFE" + utf16(kA, false)), "in.jsonl: not UTF-8 text but UTF-16" + end);
  EXPECT_EQ(refusal("\xFE\xFF" + utf16(kA, true)), "in.jsonl: not UTF-8 text but UTF-16" + end);
  EXPECT_EQ(refusal(utf16(kA, false)), "in.jsonl: not UTF-8 text but UTF-16 or UTF-32" + end);
  EXPECT_EQ(refusal(utf16(kA, true)), "in.jsonl: not UTF-8 text but UTF-16 or UTF-32" + end);
  EXPECT_EQ(refusal("\x1F\x8B\x08"), "in.jsonl: not UTF-8 text but gzip" + end);
  EXPECT_EQ(refusal("\x28\xB5\x2F\xFD..."), "in.jsonl: not UTF-8 text but zstd" + end);
  EXPECT_EQ(refusal(std::string_view("\xFD"
                                     "7zXZ\0..",
                                     8)),
            "in.jsonl: not UTF-8 text but xz" + end);
  EXPECT_EQ(refusal("GGUF\x03"), "in.jsonl: not UTF-8 text but GGUF (a model)" + end);
}

TEST_F(InputFileTest, WhatCannotBeReadIsRefused) {
  ExitCode code = ExitCode::done;
  EXPECT_EQ(error_of(directory_ + "/absent", code), directory_ + "/absent: No such file or directory");
  EXPECT_EQ(code, ExitCode::unreadable);
  EXPECT_EQ(error_of(directory_, code), directory_ + ": not a regular file; lines are read more than once, by offset");
  EXPECT_EQ(code, ExitCode::unreadable);
}

TEST_F(InputFileTest, ReadingNoticesAChangedFile) {
  const InputFile input = opened(kA + "\n" + kB + "\n");
  write(kA + "\n" + kC + "\n");
  EXPECT_EQ(input.read(input.lines()[0]), kA);
  try {
    input.read(input.lines()[1]);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code, ExitCode::other);
    EXPECT_NE(std::string(e.what()).find("line 2: input changed while running"), std::string::npos) << e.what();
  }
  write(kA);
  EXPECT_THROW(input.read(input.lines()[1]), Error);  // shorter than it was
}

TEST_F(InputFileTest, MovesWithItsFile) {
  InputFile input = opened(kA);
  InputFile moved = std::move(input);
  EXPECT_EQ(texts(moved), Texts{"1 " + kA});
  moved = opened(kB);
  EXPECT_EQ(texts(moved), Texts{"1 " + kB});
}

// Lines of many lengths around the size of a block, so that each kind of border falls inside one.
TEST_F(InputFileTest, LinesAcrossBlocks) {
  std::string bytes;
  std::vector<std::pair<uint64_t, uint32_t>> expected;
  for (const size_t n : {0x3FFFE0u, 5u, 0x3FFFFFu, 0x400000u, 1u, 0x400001u, 0x900000u, 17u}) {
    const std::string line = R"({"prompt":")" + std::string(n, 'x') + "\"}";
    expected.emplace_back(bytes.size(), line.size());
    bytes += line + (n % 2 ? "\n" : "\r\n");
  }
  const InputFile input = opened(bytes);
  ASSERT_EQ(input.lines().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(input.lines()[i].offset, expected[i].first);
    EXPECT_EQ(input.lines()[i].length, expected[i].second);
    EXPECT_FALSE(parse_prompt(input.read(input.lines()[i]), 1).fault);
  }
}

TEST_F(InputFileTest, ALongLineIsItsOwnFault) {
  const std::string longest = R"({"prompt":")" + std::string(kMaxLineBytes - 13, 'x') + "\"}";
  ASSERT_EQ(longest.size(), kMaxLineBytes);
  const std::string too_long = R"({"id":"k","prompt":")" + std::string(kMaxLineBytes + (5 << 20), 'y') + "\"}";
  for (const std::string& end : {"\n" + kB + "\n", std::string()}) {
    const InputFile input = opened(kA + "\n" + longest + "\n" + too_long + end);
    ASSERT_EQ(input.lines().size(), end.empty() ? 3u : 4u);
    EXPECT_FALSE(parse_prompt(input.read(input.lines()[1]), 2).fault);
    const PromptRecord r = parse_prompt(input.read(input.lines()[2]), 3);
    ASSERT_TRUE(r.fault);
    EXPECT_EQ(r.fault->code, "line_too_long");
    EXPECT_EQ(input.lines()[2].length, kMaxLineBytes + 1);
    EXPECT_EQ(input.lines()[2].id, digest128("line-3"));
    if (!end.empty()) {
      EXPECT_EQ(input.read(input.lines()[3]), kB);
      EXPECT_EQ(input.lines()[3].line, 4);
    }
  }
}

TEST_F(InputFileTest, NothingHidesBehindALongRunOfBlanks) {
  for (const std::string& blanks : {std::string(kMaxLineBytes, ' '), std::string(kMaxLineBytes + (9 << 20), ' ')}) {
    const InputFile input = opened(kA + blanks + "hidden\n" + kB);
    ASSERT_EQ(input.lines().size(), 2u);
    const PromptRecord r = parse_prompt(input.read(input.lines()[0]), 1);
    ASSERT_TRUE(r.fault);
    EXPECT_EQ(r.fault->code, "line_too_long");
  }
}

TEST_F(InputFileTest, BlanksAfterTheLimitDoNotMakeALineTooLong) {
  const std::string longest = R"({"prompt":")" + std::string(kMaxLineBytes - 13, 'x') + "\"}";
  const InputFile input = opened(longest + "\r\n" + kB);
  ASSERT_EQ(input.lines().size(), 2u);
  EXPECT_EQ(input.lines()[0].length, kMaxLineBytes);
  EXPECT_FALSE(parse_prompt(input.read(input.lines()[0]), 1).fault);
}

}  // namespace
}  // namespace lockstep
