// The same prompts give the same bytes on every mesh, lag, budget, page count and thread count: promise 1, over ranks as
// threads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/run_tiny.h"
#include "support/tiny_model.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const std::string& model_directory() {
  static const std::string directory = [] {
    const fs::path dir = fs::temp_directory_path() / ("lockstep_tiny_layouts_" + std::to_string(::getpid()));
    fs::remove_all(dir);
    fs::create_directories(dir);
    write_tiny_model({.n_layers = 4, .hidden = 72, .n_heads = 6, .n_kv_heads = 3, .head_dim = 16, .ffn = 100}, dir);
    return dir.string();
  }();
  return directory;
}

// Every kind of request, of lengths around page and chunk borders, faulty ones among them.
std::string prompts() {
  std::string lines;
  for (int i = 0; i < 18; ++i) {
    nlohmann::json line = {{"custom_id", "r" + std::to_string(i)},
                           {"prompt", std::string(static_cast<size_t>(1 + i * 7), static_cast<char>('a' + i))},
                           {"max_tokens", 3 + i % 13},
                           {"temperature", i % 3 == 0 ? 0.0 : 0.5 + 0.1 * i},
                           {"ignore_eos", true}};
    if (i % 4 == 1) line["seed"] = 1000 + i;
    if (i % 5 == 2) line["top_p"] = 0.7;
    if (i % 6 == 3) line["top_k"] = 5;
    if (i % 3 == 1) line["logprobs"] = 3;
    if (i == 7) line["prompt"] = {"one", "two", "three"};
    if (i == 4) line["n"] = 3;
    if (i == 5) line["frequency_penalty"] = 0.8, line["repetition_penalty"] = 1.3;
    if (i == 6) line["presence_penalty"] = 1.5, line["max_tokens"] = 20;
    if (i == 10) line["logit_bias"] = {{"70", 5}, {"71", -100}};
    if (i == 11) line["min_tokens"] = 10, line["max_tokens"] = 12, line["ignore_eos"] = false;
    if (i == 13) line["echo"] = true;
    if (i == 16) line["echo"] = true, line["max_tokens"] = 0;
    lines += line.dump() + "\n";
  }
  const std::string beginning(40, '=');
  for (int i = 0; i < 8; ++i) {  // that begin alike; two score their prompts, one samples four times
    nlohmann::json line = {{"custom_id", "alike" + std::to_string(i)},
                           {"prompt", beginning + std::string(static_cast<size_t>(8 * i), '-') + std::to_string(i)},
                           {"max_tokens", 4 + 3 * i},
                           {"temperature", i % 2}};
    if (i == 2) line["n"] = 4;
    if (i == 4 || i == 5) line["echo"] = true, line["logprobs"] = 2, line["max_tokens"] = i - 4;
    lines += line.dump() + "\n";
  }
  for (int i = 0; i < 6; ++i) {  // that grow by three pages each: where there are few, some are preempted
    nlohmann::json line = {{"custom_id", "long" + std::to_string(i)},
                           {"prompt", std::string(14, static_cast<char>('A' + i))},
                           {"max_tokens", 50},
                           {"temperature", i % 2},
                           {"ignore_eos", true}};
    lines += line.dump() + "\n";
  }
  lines += R"({"custom_id": "chat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "temperature": 0})"
           "\n";
  lines += R"({"custom_id": "nothing", "prompt": "x", "max_tokens": 0})"
           "\n";
  lines += R"({"custom_id": "faulty", "prompt": "x", "max_tokens": "8"})"
           "\n";
  lines += R"({"custom_id": "too long", "prompt": ")" + std::string(300, 'x') +
           R"("})"
           "\n";
  return lines;
}

const Records& reference() {
  static const Records records = run_tiny(model_directory(), prompts(), {.max_sequences = 1});
  return records;
}

void expect_equal(const TinyRun& run) {
  const Records records = run_tiny(model_directory(), prompts(), run);
  ASSERT_EQ(records.size(), reference().size());
  for (const auto& [id, record] : reference()) EXPECT_EQ(records.at(id), record) << id;
}

TEST(Reference, AnswersEveryLineOnce) {
  ASSERT_EQ(reference().size(), 36u);
  const auto body = [](const std::string& id) { return nlohmann::json::parse(reference().at(id)); };
  EXPECT_EQ(body("r7")["response"]["body"]["choices"].size(), 3u);
  EXPECT_EQ(body("r2")["response"]["body"]["usage"]["completion_tokens"], 5);
  EXPECT_EQ(body("r1")["response"]["body"]["choices"][0]["logprobs"]["tokens"].size(), 4u);
  EXPECT_EQ(body("chat")["response"]["body"]["object"], "chat.completion");
  EXPECT_EQ(body("nothing")["response"]["body"]["choices"][0]["text"], "");
  EXPECT_TRUE(body("faulty")["response"].is_null());
  EXPECT_EQ(body("too long")["error"]["code"], "context_length_exceeded");
}

TEST(SameBytes, TensorParallel) {
  expect_equal({.mesh = {.tp = 2}});
  expect_equal({.mesh = {.tp = 3}});
}
TEST(SameBytes, PipelineParallel) {
  expect_equal({.mesh = {.pp = 2}});
  expect_equal({.mesh = {.pp = 4}});
}
TEST(SameBytes, DataParallel) {
  expect_equal({.mesh = {.dp = 2}});
  expect_equal({.mesh = {.dp = 3}});
}
// While rank 0's device computes, the other replicas get their lines.
TEST(SameBytes, DataParallelBesideALongStep) { expect_equal({.mesh = {.dp = 2}, .lag = 1, .late_first_step = true}); }
TEST(SameBytes, AllThree) {
  expect_equal({.mesh = {.dp = 1, .pp = 2, .tp = 2}});
  expect_equal({.mesh = {.dp = 2, .pp = 2, .tp = 2}, .max_batch_tokens = 40});
}
TEST(SameBytes, Lag) {
  for (const int lag : {0, 1, 4}) expect_equal({.lag = lag});
  expect_equal({.mesh = {.pp = 2}, .lag = 4});
  expect_equal({.mesh = {.pp = 2}, .lag = 0});
}
TEST(SameBytes, BudgetAndSequences) {
  for (const int64_t budget : {1, 7, 64, 1024}) expect_equal({.max_batch_tokens = budget});
  for (const int64_t n : {2, 5, 64}) expect_equal({.max_sequences = n, .n_pages = 200});
}
TEST(SameBytes, TokenUnit) {
  expect_equal({.max_batch_tokens = 64, .token_unit = 16});
  expect_equal({.mesh = {.pp = 2}, .max_sequences = 3, .n_pages = 16, .token_unit = 7});
}
// On GPUs the root waits for its GPU, and that for the other ranks': they must have their events by then.
TEST(SameBytes, BroadcastsThatStayUntilTheyAreFlushed) {
  ASSERT_EQ(::setenv("LOCKSTEP_COMM_TIMEOUT_S", "10", 1), 0);
  expect_equal({.mesh = {.tp = 2}, .lag = 1, .hold_broadcasts = true});
  expect_equal({.mesh = {.dp = 1, .pp = 2, .tp = 2}, .lag = 2, .ahead = 1, .hold_broadcasts = true});
  expect_equal({.mesh = {.pp = 3}, .lag = 4, .n_pages = 16, .ahead = 0, .hold_broadcasts = true});
  ::unsetenv("LOCKSTEP_COMM_TIMEOUT_S");
}
// Steps of more rows than one unit of products go in two parts, whose gathers end late.
TEST(SameBytes, GathersBesideProducts) {
  expect_equal({.mesh = {.tp = 2}, .max_batch_tokens = 512, .late_gathers = true});
  expect_equal({.mesh = {.tp = 3}, .max_batch_tokens = 512, .late_gathers = true});
  expect_equal({.mesh = {.pp = 2, .tp = 2}, .max_batch_tokens = 512, .late_gathers = true});
}

TEST(SameBytes, FewPages) { expect_equal({.lag = 1, .n_pages = 16}); }
TEST(SameBytes, FewPagesAndTheHosts) {
  expect_equal({.n_pages = 16, .n_host_pages = 100, .prefix_cache = false});
  expect_equal({.lag = 1, .n_pages = 16, .n_host_pages = 6});
  expect_equal({.mesh = {.dp = 1, .pp = 2, .tp = 2}, .lag = 4, .n_pages = 16, .n_host_pages = 100});
}
TEST(SameBytes, PrefixCache) {
  expect_equal({.max_sequences = 1, .prefix_cache = false});
  for (const bool on : {false, true}) {
    expect_equal({.max_sequences = 64, .n_pages = 200, .prefix_cache = on});
    expect_equal({.mesh = {.dp = 1, .pp = 2, .tp = 2}, .lag = 4, .max_batch_tokens = 33, .n_pages = 16, .prefix_cache = on});
  }
}
TEST(SameBytes, Threads) { expect_equal({.n_threads = 3}); }

TEST(Seed, ChangesOnlyWhatIsDrawnFromIt) {
  const Records records = run_tiny(model_directory(), prompts(), {.seed = 1});
  EXPECT_EQ(records.at("r0"), reference().at("r0"));  // greedy
  EXPECT_EQ(records.at("r1"), reference().at("r1"));  // a seed of its own
  EXPECT_NE(records.at("r8"), reference().at("r8"));
}

TEST(Bf16, SameBytesToo) {
  const Records one = run_tiny(model_directory(), prompts(), {.dtype = DType::bf16});
  EXPECT_EQ(one, run_tiny(model_directory(), prompts(), {.mesh = {.tp = 2}, .max_batch_tokens = 33, .dtype = DType::bf16}));
  EXPECT_EQ(one, run_tiny(model_directory(), prompts(), {.mesh = {.pp = 2}, .max_sequences = 3, .dtype = DType::bf16}));
}

}  // namespace
}  // namespace lockstep
