// The golden models through Checkpoint: what the config says, and that values and names are right.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/files.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kTiny = LOCKSTEP_SHARED "/goldens/tiny/";
const std::string kTinyGguf = LOCKSTEP_SHARED "/goldens/tiny_gguf/";

#define SKIP_WITHOUT_GOLDENS() \
  if (!std::filesystem::exists(kTiny)) GTEST_SKIP() << "no golden data"

// The config as transformers 4 would have written it, over the same weights.
std::unique_ptr<Checkpoint> open_with_old_config(const TempDirectory& d, const std::string& name) {
  std::filesystem::copy(kTiny + name, d.path());
  std::filesystem::copy(d.path("config_v4.json"), d.path("config.json"), std::filesystem::copy_options::overwrite_existing);
  return Checkpoint::open(d.path());
}

TEST(GoldenModels, SizesAndSwitches) {
  SKIP_WITHOUT_GOLDENS();
  const auto llama = Checkpoint::open(kTiny + "llama");
  const ModelConfig& c = llama->config();
  EXPECT_EQ(c.family, "llama");
  EXPECT_EQ(c.n_layers, 2);
  EXPECT_EQ(c.hidden, 64);
  EXPECT_EQ(c.n_heads, 4);
  EXPECT_EQ(c.n_kv_heads, 2);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.ffn, 96);
  EXPECT_EQ(c.vocab, 384);
  EXPECT_EQ(c.max_positions, 512);
  EXPECT_EQ(c.rms_eps, 1e-5f);
  EXPECT_FALSE(c.tied_embeddings || c.qkv_bias || c.o_bias || c.mlp_bias || c.qk_norm);
  EXPECT_THAT(c.windows, ElementsAre(0, 0));
  EXPECT_THAT(c.eos_token_ids, ElementsAre(0));
  EXPECT_EQ(c.bos_token_id, 1);
  EXPECT_EQ(llama->natural_dtype(), DType::bf16);
  EXPECT_EQ(llama->format(), "safetensors bf16");
  EXPECT_THAT(llama->chat_template().value_or(""), HasSubstr("<|im_start|>"));
  EXPECT_THAT(llama->tokenizer_json(), HasSubstr("\"merges\""));
  EXPECT_THAT(llama->warnings(), ElementsAre());

  EXPECT_EQ(Checkpoint::open(kTiny + "llama-mha-f32")->natural_dtype(), DType::f32);
  const auto mistral = Checkpoint::open(kTiny + "mistral-swa")->config();
  EXPECT_THAT(mistral.windows, ElementsAre(16, 16));
  EXPECT_EQ(mistral.head_dim, 32);
  EXPECT_EQ(mistral.rope.theta, 1e6);
  const auto qwen2 = Checkpoint::open(kTiny + "qwen2")->config();
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.o_bias && qwen2.tied_embeddings);
  EXPECT_THAT(qwen2.windows, ElementsAre(0, 0));
  EXPECT_TRUE(Checkpoint::open(kTiny + "qwen3")->config().qk_norm);
}

TEST(GoldenModels, OldAndNewConfigSayTheSame) {
  SKIP_WITHOUT_GOLDENS();
  for (const std::string name : {"llama", "llama-mha-f32", "llama-rope-llama3", "mistral-swa", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    const TempDirectory d;
    const auto a = Checkpoint::open(kTiny + name)->config(), b = open_with_old_config(d, name)->config();
    EXPECT_EQ(a.rope.theta, b.rope.theta);
    EXPECT_EQ(a.rope.scaling, b.rope.scaling);
    EXPECT_EQ(a.rope.factor, b.rope.factor);
    EXPECT_EQ(a.rope.original_max_positions, b.rope.original_max_positions);
    EXPECT_EQ(a.windows, b.windows);
    EXPECT_EQ(a.head_dim, b.head_dim);
  }
  const auto rope = Checkpoint::open(kTiny + "llama-rope-llama3")->config().rope;
  EXPECT_EQ(rope.scaling, RopeConfig::Scaling::llama3);
  EXPECT_EQ(rope.theta, 500000);
  EXPECT_EQ(rope.factor, 8);
  EXPECT_EQ(rope.original_max_positions, 64);
}

TEST(GoldenModels, EveryTensorIsServed) {
  SKIP_WITHOUT_GOLDENS();
  for (const std::string name : {"llama", "llama-mha-f32", "llama-rope-llama3", "mistral-swa", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    const auto c = Checkpoint::open(kTiny + name);
    const auto golden = nlohmann::json::parse(read_file(kTiny + name + "/golden.json"));
    for (const auto& [tensor, info] : golden.at("tensors").items()) {
      ASSERT_TRUE(c->has(tensor)) << tensor;
      const auto shape = info.at(1).get<std::vector<int64_t>>();
      EXPECT_EQ(c->shape(tensor), std::pair(shape.size() == 1 ? 1 : shape[0], shape.back())) << tensor;
    }
    EXPECT_TRUE(c->has("lm_head.weight"));
    EXPECT_FALSE(c->has("model.layers.2.mlp.up_proj.weight"));
    EXPECT_EQ(read_all(*c, c->config().tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight"),
              read_all(*c, "lm_head.weight"));
  }
}

// RC-60: the same weights in both formats. GGUF keeps q and k rows permuted; a missed permutation would show here.
TEST(GoldenModels, GgufHoldsTheSameWeights) {
  SKIP_WITHOUT_GOLDENS();
  const auto hf = Checkpoint::open(kTiny + "llama"), gguf = Checkpoint::open(kTinyGguf + "llama-f16.gguf");
  EXPECT_EQ(gguf->format(), "gguf f16");
  EXPECT_EQ(gguf->natural_dtype(), DType::f32);
  const ModelConfig &a = hf->config(), &b = gguf->config();
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(a.n_layers, b.n_layers);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.vocab, b.vocab);
  EXPECT_EQ(a.max_positions, b.max_positions);
  EXPECT_EQ(a.rms_eps, b.rms_eps);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  EXPECT_EQ(a.eos_token_ids, b.eos_token_ids);
  EXPECT_EQ(a.bos_token_id, b.bos_token_id);
  EXPECT_EQ(hf->chat_template(), gguf->chat_template());
  for (const std::string name :
       {"model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
        "model.layers.1.mlp.down_proj.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.1.post_attention_layernorm.weight", "model.norm.weight", "lm_head.weight"}) {
    ASSERT_EQ(hf->shape(name), gguf->shape(name)) << name;
    const auto x = read_all(*hf, name), y = read_all(*gguf, name);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(x[i], y[i], 1e-3 * (std::abs(x[i]) + 1e-4)) << name << " " << i;  // f16 rounding
  }
}

TEST(GoldenModels, RowsInPartsAreTheRowsOfTheWhole) {
  SKIP_WITHOUT_GOLDENS();
  for (const std::string file :
       {"tiny_gguf/llama-f16.gguf", "tiny_gguf/llama-kquants.gguf", "tiny_gguf/llama-q8_0.gguf", "tiny/llama"}) {
    const auto c = Checkpoint::open(LOCKSTEP_SHARED "/goldens/" + file);
    for (const std::string name : {"model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight"}) {
      const auto whole = read_all(*c, name);
      const auto [rows, cols] = c->shape(name);
      for (const Range part : {Range{0, 1}, Range{3, 21}, Range{rows - 1, rows}, Range{16, 32}, Range{5, 5}, Range{15, rows}}) {
        std::vector<float> got(static_cast<size_t>(part.size() * cols));
        c->read_rows(name, part, got.data());
        EXPECT_TRUE(std::equal(got.begin(), got.end(), whole.begin() + part.begin * cols))
            << file << " " << name << " " << part.begin;
      }
      std::vector<float> out(whole.size());
      EXPECT_THROW(c->read_rows(name, {0, rows + 1}, out.data()), Error);
      EXPECT_THROW(c->read_rows(name, {2, 1}, out.data()), Error);
      EXPECT_THROW(c->read_rows(name, {-1, 1}, out.data()), Error);
    }
    EXPECT_THROW(c->shape("model.layers.0.self_attn.q_proj"), Error);
  }
}

TEST(GoldenModels, GgufTokenizer) {
  SKIP_WITHOUT_GOLDENS();
  const auto t = Checkpoint::open(kTinyGguf + "llama-q4_1.gguf")->gguf_tokenizer();
  ASSERT_TRUE(t);
  EXPECT_EQ(t->model, "gpt2");
  EXPECT_EQ(t->pre, "gpt-2");
  EXPECT_EQ(t->tokens.size(), 384u);
  EXPECT_EQ(t->tokens[1], "<|bos|>");
  EXPECT_EQ(t->token_types[0], 3);
  EXPECT_EQ(t->merges.size(), 124u);
  EXPECT_EQ(t->bos_id, 1);
  EXPECT_EQ(t->eos_id, 0);
  EXPECT_EQ(t->add_bos, false);
  EXPECT_EQ(t->add_eos, std::nullopt);
}

}  // namespace
}  // namespace lockstep
