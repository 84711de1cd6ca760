#include "cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

#include "base/error.h"
#include "version.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Command parse(const std::vector<std::string>& words) {
  std::vector<const char*> argv{"lockstep"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse_command_line(static_cast<int>(argv.size()), argv.data());
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

const std::string kMinimal = "run --model m --input i.jsonl --output o ";

RunOptions run_options(const std::string& more) { return parse(split_words(kMinimal + more)).run; }

std::string refusal(const std::vector<std::string>& words) {
  try {
    parse(words);
  } catch (const Error& e) {
    EXPECT_EQ(e.code, ExitCode::usage) << e.what();
    return e.what();
  }
  return "accepted";
}
std::string refusal(const std::string& more) { return refusal(split_words(kMinimal + more)); }

TEST(Cli, Defaults) {
  const Command command = parse(split_words(kMinimal));
  EXPECT_EQ(command.kind, Command::Kind::run);
  EXPECT_THAT(command.notes, IsEmpty());
  const RunOptions& o = command.run;
  EXPECT_EQ(o.model, "m");
  EXPECT_EQ(o.input, "i.jsonl");
  EXPECT_EQ(o.output, "o");
  EXPECT_FALSE(o.tp || o.pp || o.dp || o.kv_memory || o.swap_memory || o.max_tokens || o.temperature || o.top_p ||
               o.walltime_s || o.lag);
  EXPECT_EQ(o.device, "auto");
  EXPECT_EQ(o.max_batch_tokens, 0) << "the device's default";
  EXPECT_EQ(o.max_sequences, 0);
  EXPECT_EQ(o.resume, "auto");
  EXPECT_FALSE(o.overwrite || o.retry_errors || o.takeover);
}

TEST(Cli, EveryValueArrives) {
  const RunOptions o = run_options(
      "--tp 2 --pp 3 --dp 4 --device cpu --dtype bf16 --load-format auto --max-batch-tokens 512 --max-sequences 8 "
      "--max-model-len 1024 "
      "--kv-memory 1.5GiB --swap-memory 0 --threads 7 --prefix-cache off --seed 18446744073709551615 --max-tokens 0 "
      "--temperature 0 --top-p "
      "0.9 "
      "--content-special-tokens text --served-model-name name --limit 010 --resume never --retry-errors --takeover --preflight "
      "off "
      "--progress off --lag 4");
  EXPECT_EQ(o.tp, 2);
  EXPECT_EQ(o.pp, 3);
  EXPECT_EQ(o.dp, 4);
  EXPECT_EQ(o.device, "cpu");
  EXPECT_EQ(o.dtype, "bf16");
  EXPECT_EQ(o.max_batch_tokens, 512);
  EXPECT_EQ(o.max_sequences, 8);
  EXPECT_EQ(o.max_model_len, 1024);
  EXPECT_EQ(o.kv_memory, uint64_t{3} << 29);
  EXPECT_EQ(o.swap_memory, 0u);
  EXPECT_EQ(o.threads, 7);
  EXPECT_EQ(o.seed, UINT64_MAX);
  EXPECT_EQ(o.max_tokens, 0);
  EXPECT_EQ(o.temperature, 0.0);
  EXPECT_EQ(o.top_p, 0.9);
  EXPECT_EQ(o.served_model_name, "name");
  EXPECT_EQ(o.limit, 10);  // not octal
  EXPECT_EQ(o.resume, "never");
  EXPECT_TRUE(o.retry_errors && o.takeover && !o.overwrite);
  EXPECT_EQ(o.progress, "off");
  EXPECT_EQ(o.lag, 4);
  EXPECT_EQ(run_options("--swap-memory 16G").swap_memory, uint64_t{16} << 30);
  EXPECT_EQ(run_options("--memory-fraction=0.25").memory_fraction, 0.25);
}

TEST(Cli, ValuesOutOfRangeAreNamed) {
  for (const char* bad : {"--tp 0",
                          "--tp -1",
                          "--tp two",
                          "--tp 1.5",
                          "--tp 99999999999999999999",
                          "--pp 0",
                          "--dp 0",
                          "--threads 0",
                          "--max-batch-tokens 0",
                          "--max-sequences 0",
                          "--max-sequences 1e3",
                          "--max-model-len 0",
                          "--limit 0",
                          "--seed -1",
                          "--seed 18446744073709551616",
                          "--max-tokens -1",
                          "--max-tokens 0x10",
                          "--temperature -0.1",
                          "--temperature 2.5",
                          "--temperature nan",
                          "--temperature inf",
                          "--top-p 0",
                          "--top-p 1.01",
                          "--memory-fraction 0",
                          "--memory-fraction 1.5",
                          "--kv-memory 0",
                          "--kv-memory 8X",
                          "--kv-memory -1G",
                          "--swap-memory off",
                          "--swap-memory -1G",
                          "--walltime soon",
                          "--device gpu",
                          "--dtype f16",
                          "--resume maybe",
                          "--prefix-cache yes",
                          "--graphs 1",
                          "--preflight fast",
                          "--progress on",
                          "--lag -1"}) {
    const std::vector<std::string> words = split_words(bad);
    EXPECT_THAT(refusal(bad), AllOf(HasSubstr(words[0]), HasSubstr(words[1]))) << bad;
  }
  EXPECT_THAT(refusal("--tp 0"), HasSubstr("--tp: 0 is not a whole number from 1 to 65536 (lockstep run --help)"));
  EXPECT_THAT(refusal("--temperature 3"), HasSubstr("3 is not a number in [0, 2]"));
  EXPECT_THAT(refusal("--kv-memory 8X"), HasSubstr("8X is no size; write 8G"));
  EXPECT_THAT(refusal({"run", "--model", "", "--input", "i", "--output", "o"}), HasSubstr("--model"));
}

TEST(Cli, ShardsCountFromZeroOrFromOne) {
  EXPECT_EQ(run_options("").n_shards, 1);
  EXPECT_EQ(run_options("").shard, 0);
  for (const auto& [text, shard] : {std::pair("0/3", 0), {"1/3", 1}, {"2/3", 2}, {"3/3", 0}}) {
    EXPECT_EQ(run_options(concat("--shard ", text)).shard, shard) << text;
    EXPECT_EQ(run_options(concat("--shard ", text)).n_shards, 3) << text;
  }
  for (const char* bad :
       {"4/3", "-1/3", "1/0", "1/-3", "1", "1/", "/3", "1/3/5", "a/b", "1/1000001", "1.0/3", "99999999999999999999/3"})
    EXPECT_THAT(refusal(concat("--shard ", bad)), AllOf(HasSubstr("--shard"), HasSubstr(bad))) << bad;
  EXPECT_THAT(refusal("--shard 4/3"), HasSubstr("I is not a whole number from 1 to 3 or from 0 to 2"));
}

TEST(Cli, WhatThisVersionLacksIsRefused) {
  for (const char* option :
       {"--preflight quick", "--preflight deep", "--walltime 4h", "--grace 90s", "--hang-timeout 5m", "--metrics f"})
    EXPECT_THAT(refusal(option), AllOf(HasSubstr(split_words(option)[0]), HasSubstr("not available in lockstep"))) << option;
  for (const char* name : {"preflight", "plan"})
    EXPECT_THAT(refusal(std::vector<std::string>{name, "--anything"}), HasSubstr(concat("lockstep ", name, ": not available")))
        << name;
}

TEST(Cli, Report) {
  const Command command = parse({"report", "out"});
  EXPECT_EQ(command.kind, Command::Kind::report);
  EXPECT_EQ(command.report.directory, "out");
  EXPECT_EQ(command.report.output, "");
  EXPECT_EQ(parse({"report", "--output", "page.html", "out"}).report.output, "page.html");
  EXPECT_THAT(parse({"report", "--help"}).text, HasSubstr("--output FILE"));
  EXPECT_THAT(refusal(std::vector<std::string>{"report"}), HasSubstr("DIR is required (lockstep report --help)"));
  EXPECT_THAT(refusal(std::vector<std::string>{"report", ""}), HasSubstr("DIR"));
  EXPECT_THAT(refusal(std::vector<std::string>{"report", "a", "b"}), HasSubstr("b"));
}

TEST(Cli, GraphsAreOnUnlessTurnedOff) {
  EXPECT_TRUE(run_options("").graphs);
  EXPECT_FALSE(run_options("--graphs off").graphs);
}

TEST(Cli, WrongWordsAreUsageErrors) {
  EXPECT_THAT(refusal(std::vector<std::string>{}), HasSubstr("a command is missing"));
  EXPECT_THAT(refusal(std::vector<std::string>{"serve"}), HasSubstr("unknown command: serve"));
  EXPECT_THAT(refusal(std::vector<std::string>{"run", "--input", "i", "--output", "o"}), HasSubstr("--model is required"));
  EXPECT_THAT(refusal("--modle m"), HasSubstr("--modle"));
  EXPECT_THAT(refusal("stray"), HasSubstr("stray"));
  EXPECT_THAT(refusal("--tp 1 --tp 2"), HasSubstr("--tp"));
  EXPECT_THAT(refusal("--tp"), HasSubstr("--tp"));
  EXPECT_THAT(refusal("--kv-memory 1G --memory-fraction 0.5"), HasSubstr("excludes"));
  EXPECT_THAT(refusal(std::vector<std::string>{"merge"}), AllOf(HasSubstr("DIR"), HasSubstr("lockstep merge --help")));
}

TEST(Cli, Merge) {
  const Command command = parse({"merge", "a", "b", "--partial"});
  EXPECT_EQ(command.kind, Command::Kind::merge);
  EXPECT_THAT(command.merge.directories, ElementsAre("a", "b"));
  EXPECT_TRUE(command.merge.partial);
  EXPECT_FALSE(parse({"merge", "a"}).merge.partial);
  EXPECT_EQ(parse({"merge", "a"}).merge.output, "");
  EXPECT_EQ(parse({"merge", "a", "b", "--output", "c"}).merge.output, "c");
}

TEST(Cli, HelpAndVersion) {
  const Command version = parse({"--version"});
  EXPECT_EQ(version.kind, Command::Kind::text);
  EXPECT_EQ(version.text, concat("lockstep ", kVersion, "\n"));
  EXPECT_THAT(parse({"--help"}).text, AllOf(HasSubstr("run"), HasSubstr("merge"), HasSubstr("Exit codes")));
  const std::string help = parse({"run", "--help"}).text;
  for (const char* option : {"--model", "--input", "--output", "--tp", "--kv-memory", "--swap-memory", "--temperature",
                             "--retry-errors", "--progress"})
    EXPECT_THAT(help, HasSubstr(option));
  EXPECT_THAT(help, AllOf(HasSubstr("(2048; GPU 8192)"), HasSubstr("Layout"),
                          HasSubstr("[not in this version: quick, standard, deep]"), Not(HasSubstr("--lag"))));
  EXPECT_THAT(parse({"merge", "--help"}).text, HasSubstr("--partial"));
}

}  // namespace
}  // namespace lockstep
