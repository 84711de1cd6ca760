// What GGUF says differently, visible by eye, and files that lie.
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/files.h"
#include "checkpoint/gguf_builder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<Checkpoint> open_built(const TempDirectory& d, const GgufBuilder& g) {
  return Checkpoint::open(d.write("m.gguf", g.build()));
}

std::string error_of(const GgufBuilder& g) {
  const TempDirectory d;
  return open_error(d.write("m.gguf", g.build()));
}

std::vector<float> first_column(const Checkpoint& c, const std::string& name) {
  const auto [rows, cols] = c.shape(name);
  const auto values = read_all(c, name);
  std::vector<float> column;
  for (int64_t r = 0; r < rows; ++r) column.push_back(values[static_cast<size_t>(r * cols)]);
  return column;
}

TEST(Gguf, SmallModel) {
  const TempDirectory d;
  const auto c = open_built(d, small_llama());
  EXPECT_EQ(c->config().family, "llama");
  EXPECT_EQ(c->config().head_dim, 4);
  EXPECT_TRUE(c->config().tied_embeddings);
  EXPECT_EQ(c->config().max_positions, 64);
  EXPECT_THAT(c->config().eos_token_ids, ElementsAre(1));
  EXPECT_EQ(c->chat_template(), "{{ messages }}");
  EXPECT_THAT(c->warnings(), IsEmpty());
  EXPECT_EQ(c->files()[0].name, "m.gguf");
  EXPECT_THAT(c->identity_paths(), ElementsAre(d.path("m.gguf")));
  EXPECT_EQ(c->shape("model.layers.0.mlp.down_proj.weight"), (std::pair<int64_t, int64_t>(8, 12)));
  EXPECT_EQ(read_all(*c, "lm_head.weight")[47], 47);
}

// Within a head of 4, GGUF's rows are 0 2 1 3 of Hugging Face's (pairs next to each other).
TEST(Gguf, RowsOfQAndKReturnToHuggingFaceOrder) {
  const TempDirectory d;
  auto g = small_llama();
  for (const char* bias : {"blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias"})
    g.add(bias, {bias[11] == 'q' ? 8u : 4u});
  const auto c = open_built(d, g);
  EXPECT_THAT(first_column(*c, "model.layers.0.self_attn.q_proj.weight"), ElementsAre(0, 16, 8, 24, 32, 48, 40, 56));
  EXPECT_THAT(first_column(*c, "model.layers.0.self_attn.k_proj.weight"), ElementsAre(0, 16, 8, 24));
  EXPECT_THAT(first_column(*c, "model.layers.0.self_attn.v_proj.weight"), ElementsAre(0, 8, 16, 24));
  EXPECT_THAT(read_all(*c, "model.layers.0.self_attn.q_proj.bias"), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(read_all(*c, "model.layers.0.self_attn.v_proj.bias"), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(c->config().qkv_bias);

  for (const std::string arch : {"qwen2", "qwen3"}) {  // not permuted
    auto q = small_llama(arch);
    for (const char* bias : {"blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias"})
      q.add(bias, {bias[11] == 'q' ? 8u : 4u});
    const auto qwen = open_built(d, q);
    EXPECT_EQ(qwen->config().family, arch);
    EXPECT_EQ(qwen->config().qk_norm, arch == "qwen3");
    EXPECT_THAT(first_column(*qwen, "model.layers.0.self_attn.q_proj.weight"), ElementsAre(0, 8, 16, 24, 32, 40, 48, 56));
    EXPECT_THAT(read_all(*qwen, "model.layers.0.self_attn.q_proj.bias"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  }
}

TEST(Gguf, HeadOfItsOwn) {
  const TempDirectory d;
  auto g = small_llama();
  g.add("output.weight", {8, 6});
  g.tensor("output.weight").bytes.replace(0, 4, raw(-5.0f));
  const auto c = open_built(d, g);
  EXPECT_FALSE(c->config().tied_embeddings);
  EXPECT_EQ(read_all(*c, "lm_head.weight")[0], -5);
  EXPECT_EQ(read_all(*c, "model.embed_tokens.weight")[0], 0);
}

TEST(Gguf, Rope) {
  const TempDirectory d;
  auto g = small_llama();
  g.f32("llama.rope.freq_base", 500000);
  g.add("rope_freqs.weight", {2});
  g.tensor("rope_freqs.weight").bytes = raw(1.0f) + raw(8.0f);
  auto rope = open_built(d, g)->config().rope;
  EXPECT_EQ(rope.theta, 500000);
  EXPECT_EQ(rope.scaling, RopeConfig::Scaling::none);
  EXPECT_THAT(rope.frequency_factors, ElementsAre(1, 8));
  g.tensor("rope_freqs.weight").bytes = raw(1.0f) + raw(0.0f);
  EXPECT_THAT(error_of(g), HasSubstr("rope_freqs.weight is 0"));
  g.tensor("rope_freqs.weight").dims = {1};
  EXPECT_THAT(error_of(g), HasSubstr("F32 [2] is expected"));

  g = small_llama();
  g.f32("llama.rope.scaling.factor", 4);
  g.text("llama.rope.scaling.type", "linear");
  rope = open_built(d, g)->config().rope;
  EXPECT_EQ(rope.scaling, RopeConfig::Scaling::linear);
  EXPECT_EQ(rope.factor, 4);
  g.text("llama.rope.scaling.type", "yarn");
  EXPECT_THAT(error_of(g), HasSubstr("'yarn' is not supported; none, linear"));
  g = small_llama();
  g.u32("llama.rope.dimension_count", 2);
  EXPECT_THAT(error_of(g), HasSubstr("RoPE over 2 of 4 dimensions is not supported"));
}

TEST(Gguf, SlidingWindow) {
  const TempDirectory d;
  auto g = small_llama();
  g.u32("llama.attention.sliding_window", 16);
  EXPECT_EQ(open_built(d, g)->config().family, "mistral");
  EXPECT_THAT(open_built(d, g)->config().windows, ElementsAre(16));
  g = small_llama("qwen3");
  g.u32("qwen3.attention.sliding_window", 16);
  EXPECT_THAT(open_built(d, g)->config().windows, ElementsAre(0));
  EXPECT_THAT(open_built(d, g)->warnings(), ElementsAre(HasSubstr("sliding_window is ignored")));
}

TEST(Gguf, Version2And3) {
  const TempDirectory d;
  auto g = small_llama();
  g.version = 2;
  EXPECT_TRUE(open_built(d, g)->has("model.norm.weight"));
}

TEST(Gguf, AlignmentOfItsOwn) {
  const TempDirectory d;
  auto g = small_llama();
  g.u32("general.alignment", 256);
  g.alignment = 256;
  EXPECT_EQ(read_all(*open_built(d, g), "model.norm.weight")[7], 7);
}

TEST(Gguf, TokenizerThatIsNotWhole) {  // RC-61
  const TempDirectory d;
  auto g = small_llama();
  g.erase("tokenizer.ggml.pre");
  g.erase("tokenizer.chat_template");
  const auto c = open_built(d, g);
  EXPECT_THAT(c->warnings(), ElementsAre(HasSubstr("no tokenizer.ggml.pre")));
  EXPECT_EQ(c->gguf_tokenizer()->pre, "");
  EXPECT_EQ(c->chat_template(), std::nullopt);
  g.erase("tokenizer.ggml.tokens");
  EXPECT_EQ(open_built(d, g)->gguf_tokenizer(), std::nullopt);
}

TEST(Gguf, TokenIdsOutsideTheVocabularyAreDropped) {
  const TempDirectory d;
  auto g = small_llama();
  g.u32("tokenizer.ggml.eos_token_id", 6);
  g.u32("tokenizer.ggml.eot_token_id", 5);
  const auto c = open_built(d, g);
  EXPECT_THAT(c->config().eos_token_ids, ElementsAre(5));
  EXPECT_EQ(c->gguf_tokenizer()->eos_id, std::nullopt);
  EXPECT_THAT(c->warnings(), ElementsAre(HasSubstr("eos_token_id 6 is ignored")));
}

TEST(Gguf, UnusedTensorsAreNamed) {
  const TempDirectory d;
  auto g = small_llama();
  g.add("foo.bar", {3});
  g.tensors.push_back({"some.ints", {2}, 26, std::string(8, '\1')});  // I32: of no use, but its size is known
  EXPECT_THAT(open_built(d, g)->warnings(), ElementsAre(HasSubstr("2 tensors are not used: foo.bar, some.ints")));
}

struct Lie {
  const char* what;
  std::function<void(GgufBuilder&)> tell;
  const char* says;
};

// Each file is well-formed but for one thing; the message must name it. The numbers are those of published attacks: counts and
// lengths near 2^64, dimensions whose product wraps, offsets beyond the file.
TEST(Gguf, FilesThatLie) {
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  const std::vector<Lie> lies = {
      {"magic", [](auto& g) { g.magic = "GGML"; }, "not a GGUF file"},
      {"version 99", [](auto& g) { g.version = 99; }, "GGUF version 99 is not supported; 2 and 3 are"},
      {"version 1", [](auto& g) { g.version = 1; }, "GGUF version 1 is not supported"},
      {"big endian", [](auto& g) { g.version = 0x03000000; }, "big-endian"},
      {"keys", [](auto& g) { g.n_keys = std::numeric_limits<int64_t>::max(); }, "metadata keys are announced"},
      {"tensors", [](auto& g) { g.n_tensors = std::numeric_limits<int64_t>::max(); }, "tensors are announced"},
      {"one key too many", [](auto& g) { g.n_keys = static_cast<int64_t>(g.metadata.size()) + 1; }, "GGUF header at byte"},
      {"string length", [](auto& g) { g.put("x", 8, raw(kHuge)); }, "a string of 9223372036854775808 bytes"},
      {"array length", [](auto& g) { g.put("x", 9, raw<uint32_t>(0) + raw(kHuge)); }, "array of 9223372036854775808 values"},
      {"array of arrays", [](auto& g) { g.put("x", 9, raw<uint32_t>(9) + raw<uint64_t>(1)); },
       "array of the unsupported type 9"},
      {"value type", [](auto& g) { g.put("x", 13, "abcd"); }, "'x' has the unknown type 13"},
      {"boolean", [](auto& g) { g.put("x", 7, "\7"); }, "a boolean of 7"},
      {"unsigned", [](auto& g) { g.put("x", 10, raw(kHuge)); }, "'x' is 9223372036854775808"},
      {"key twice", [](auto& g) { g.metadata.push_back(g.metadata[0]); }, "key 'general.architecture' is there twice"},
      {"no dimensions", [](auto& g) { g.tensors[0].dims = {}; }, "has 0 dimensions"},
      {"dimensions",
       [](auto& g) {
         g.tensors[0].dims = {1, 1, 1, 1, 1};
       },
       "has 5 dimensions"},
      {"negative",
       [](auto& g) {
         g.tensors[0].dims = {kHuge, 1};
       },
       "9223372036854775808"},
      {"product",
       [](auto& g) {
         g.tensors[0].dims = {uint64_t{1} << 32, uint64_t{1} << 32};
       },
       "'token_embd.weight' is too large"},
      {"bytes",
       [](auto& g) {
         g.tensors[0].dims = {uint64_t{1} << 31, uint64_t{1} << 31};
       },
       "'token_embd.weight' is too large"},
      {"bytes wrap to few", [](auto& g) { g.tensors[0].dims = {(uint64_t{1} << 62) + 8}; }, "'token_embd.weight' is too large"},
      {"offset", [](auto& g) { g.tensors[0].offset = 1 << 30; }, "bytes at 1073741824 of"},
      {"offset wraps", [](auto& g) { g.tensors[0].offset = ~uint64_t{31}; }, "is the file cut short?"},
      {"alignment of a tensor", [](auto& g) { g.tensors[0].offset = 4; }, "is not aligned to 32"},
      {"overlap", [](auto& g) { g.tensors[1].offset = 0; }, "overlap"},
      {"alignment 0", [](auto& g) { g.u32("general.alignment", 0); }, "general.alignment is not a power of two"},
      {"alignment 24", [](auto& g) { g.u32("general.alignment", 24); }, "general.alignment is not a power of two"},
      {"alignment 2^31", [](auto& g) { g.u32("general.alignment", 1u << 31); }, "general.alignment is not a power of two"},
      {"tensor twice", [](auto& g) { g.tensors[1].name = g.tensors[0].name; }, "tensor 'token_embd.weight' is there twice"},
      {"unknown type", [](auto& g) { g.tensors[0].type = 77; }, "tensor 'token_embd.weight' has the unknown type 77; F32, F16"},
      {"type that is not read", [](auto& g) { g.tensors[0].type = 24; }, "tensor 'token_embd.weight' has type I8; F32, F16"},
      {"blocks", [](auto& g) { g.tensors[0].type = 2; }, "rows of 8 are not whole blocks of Q4_0"},
      {"architecture", [](auto& g) { g.text("general.architecture", "mamba"); }, "'mamba' is not supported; llama"},
      {"no architecture", [](auto& g) { g.erase("general.architecture"); }, "GGUF architecture '' is not supported"},
      {"type of architecture", [](auto& g) { g.u32("general.architecture", 1); }, "'general.architecture' is not a string"},
      {"experts", [](auto& g) { g.u32("llama.expert_count", 8); }, "mixture of experts"},
      {"block count", [](auto& g) { g.u32("llama.block_count", 513); }, "tensor 'blk.1.attn_norm.weight' [8] is missing"},
      {"many blocks", [](auto& g) { g.u32("llama.block_count", 1u << 31); }, "num_hidden_layers is 2147483648"},
      {"no blocks", [](auto& g) { g.u32("llama.block_count", 0); }, "num_hidden_layers is 0"},
      {"no block count", [](auto& g) { g.erase("llama.block_count"); }, "no GGUF key 'llama.block_count'"},
      {"heads 0", [](auto& g) { g.u32("llama.attention.head_count", 0); }, "head_count 0"},
      {"kv heads 0", [](auto& g) { g.u32("llama.attention.head_count_kv", 0); }, "num_key_value_heads is 0"},
      {"eps", [](auto& g) { g.f32("llama.attention.layer_norm_rms_epsilon", NAN); }, "rms_norm_eps is nan"},
      {"theta", [](auto& g) { g.f32("llama.rope.freq_base", -1); }, "rope_theta is -1"},
      {"heads by layer",
       [](auto& g) {
         g.i32s("llama.attention.head_count_kv", {1, 2});
       },
       "the same for all layers"},
      {"vocabulary", [](auto& g) { g.u32("llama.vocab_size", 7); }, "vocab_size is 7, token_embd.weight has 6 rows"},
      {"tokens", [](auto& g) { g.strings("tokenizer.ggml.tokens", std::vector<std::string>(7, "a")); },
       "7 tokens, token_embd.weight has 6"},
      {"types of tokens", [](auto& g) { g.i32s("tokenizer.ggml.token_type", {1}); }, "token_type has 1 entries for 6 tokens"},
      {"tokens that are numbers",
       [](auto& g) {
         g.i32s("tokenizer.ggml.tokens", {1, 2});
       },
       "is not an array of strings"},
      {"template", [](auto& g) { g.text("tokenizer.chat_template", "\xFF"); }, "chat_template is not valid UTF-8"},
      {"shape",
       [](auto& g) {
         g.tensor("blk.0.attn_k.weight").dims = {4, 8};
       },
       "tensor 'blk.0.attn_k.weight' has shape [8, 4], the metadata ask for [4, 8]"},
      {"missing tensor", [](auto& g) { g.erase_tensor("blk.0.ffn_up.weight"); },
       "tensor 'blk.0.ffn_up.weight' [12, 8] is missing"},
      {"q norm", [](auto& g) { g.add("blk.0.attn_q_norm.weight", {4}); }, "attn_q_norm.weight' in the llama architecture"},
      {"part of many", [](auto& g) { g.u32("split.count", 3); }, "one of 3 parts, but not named"},
  };
  for (const auto& lie : lies) {
    SCOPED_TRACE(lie.what);
    auto g = small_llama();
    lie.tell(g);
    const std::string message = error_of(g);
    EXPECT_THAT(message, HasSubstr(lie.says));
    EXPECT_THAT(message, HasSubstr("m.gguf"));
    EXPECT_LT(message.size(), 600u);
  }
}

TEST(Gguf, EveryCutIsRefused) {
  const TempDirectory d;
  const std::string whole = small_llama().build();
  for (size_t n = 0; n < whole.size(); n += n < 64 ? 1 : 7) open_error(d.write("m.gguf", whole.substr(0, n)));
}

// Any byte of the header replaced: the file opens and can be read in full, or is refused. Nothing else may happen.
TEST(Gguf, EveryDamagedByteOpensOrIsRefused) {
  const TempDirectory d;
  const std::string whole = small_llama().build();
  const size_t header = small_llama().header().size();
  int opened = 0, refused = 0;
  for (size_t i = 0; i < header; ++i) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      try {
        const auto c = Checkpoint::open(d.write("m.gguf", damaged));
        for (const char* name : {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"})
          read_all(*c, name);
        ++opened;
      } catch (const Error& e) {
        ASSERT_EQ(e.code, ExitCode::unreadable) << e.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(opened, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace lockstep
