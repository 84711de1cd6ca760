// Hugging Face directories as people have them: sharded, with leftovers, half downloaded, mixed. On tiny models of our own.
#include <sys/stat.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/files.h"
#include "support/tiny_model.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kIndex = "model.safetensors.index.json";

// Parts of a safetensors file taken apart, changed and put together again; offsets are made anew.
struct Parts {
  json header;
  std::string data;
};

Parts take_apart(const std::string& path) {
  const std::string bytes = read_file(path);
  uint64_t n = 0;
  std::memcpy(&n, bytes.data(), 8);
  return {json::parse(bytes.substr(8, n)), bytes.substr(8 + n)};
}

std::string put_together(const Parts& parts) {
  const std::string text = parts.header.dump();
  const uint64_t n = text.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + text + parts.data;
}

void change_json(const std::string& path, const json& changes) {
  json root = json::parse(read_file(path));
  root.merge_patch(changes);
  std::ofstream(path) << root;
}

// Replaces a tensor by bytes at the end of the data, and fills its old place with an unused one.
void replace_tensor(Parts& parts, const std::string& name, const std::string& dtype, const json& shape,
                    const std::string& bytes) {
  json old = parts.header[name];
  const int64_t old_bytes = old["data_offsets"][1].get<int64_t>() - old["data_offsets"][0].get<int64_t>();
  parts.header["unused.filler"] = {{"dtype", "U8"}, {"shape", {old_bytes}}, {"data_offsets", old["data_offsets"]}};
  parts.header[name] = {
      {"dtype", dtype}, {"shape", shape}, {"data_offsets", {parts.data.size(), parts.data.size() + bytes.size()}}};
  parts.data += bytes;
}

TEST(HfDirectory, EveryFamilyShardedOrNot) {
  for (const std::string family : {"llama", "mistral", "qwen2", "qwen3"}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      SCOPED_TRACE(family);
      const TempDirectory one, three;
      TinyModel m{.family = family, .head_dim = 24, .dtype = dtype, .sliding_window = 9};
      write_tiny_model(m, one.path());
      m.n_shards = 3;
      write_tiny_model(m, three.path());
      const auto a = Checkpoint::open(one.path()), b = Checkpoint::open(three.path());
      EXPECT_THAT(a->warnings(), IsEmpty());
      EXPECT_THAT(b->warnings(), IsEmpty());
      EXPECT_EQ(a->natural_dtype(), dtype);
      EXPECT_EQ(a->config().family, family);
      EXPECT_EQ(a->config().head_dim, 24);
      EXPECT_EQ(a->config().windows[1], family == "llama" ? 0 : 9);
      EXPECT_THAT(a->config().eos_token_ids, ElementsAre(kTinyImEnd));
      EXPECT_THAT(a->config().generation.eos_token_ids, ElementsAre(kTinyImEnd, kTinyEndOfText));
      EXPECT_EQ(a->files().size(), 5u);
      EXPECT_EQ(b->files().size(), 8u);
      EXPECT_EQ(b->identity_paths().size(), 8u);
      for (const char* name : {"model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight", "lm_head.weight"}) {
        EXPECT_EQ(read_all(*a, name), read_all(*b, name)) << name;
      }
    }
  }
}

TEST(HfDirectory, BothDtypesHoldTheSameModel) {
  const TempDirectory half, full;
  write_tiny_model({.dtype = DType::bf16}, half.path());
  write_tiny_model({.dtype = DType::f32}, full.path());
  const auto a = Checkpoint::open(half.path()), b = Checkpoint::open(full.path());
  const auto values = read_all(*a, "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(values, read_all(*b, "model.layers.0.mlp.up_proj.weight"));
  EXPECT_NE(values[0], values[1]);
}

TEST(HfDirectory, TiedHeadThatDiffersIsIgnoredAndSaid) {  // RC-55
  const TempDirectory d;
  write_tiny_model({.tied = false}, d.path());
  change_json(d.path("config.json"), {{"tie_word_embeddings", true}});
  auto c = Checkpoint::open(d.path());
  EXPECT_THAT(c->warnings(), ElementsAre(AllOf(HasSubstr("lm_head.weight is ignored"), HasSubstr("it differs"))));
  EXPECT_EQ(read_all(*c, "lm_head.weight"), read_all(*c, "model.embed_tokens.weight"));

  auto parts = take_apart(d.path("model.safetensors"));
  const auto place = [&](const char* name) { return parts.header[name]["data_offsets"][0].get<size_t>(); };
  const size_t n = parts.header["lm_head.weight"]["data_offsets"][1].get<size_t>() - place("lm_head.weight");
  parts.data.replace(place("lm_head.weight"), n, parts.data.substr(place("model.embed_tokens.weight"), n));
  d.write("model.safetensors", put_together(parts));
  EXPECT_THAT(Checkpoint::open(d.path())->warnings(), IsEmpty());
  parts.data[place("lm_head.weight") + n - 1] ^= 1;  // the very last byte
  d.write("model.safetensors", put_together(parts));
  EXPECT_THAT(Checkpoint::open(d.path())->warnings(), ElementsAre(HasSubstr("it differs")));
}

TEST(HfDirectory, OnlyWhatTheIndexNamesIsRead) {  // RC-56
  const TempDirectory d, clean;
  const TinyModel m{.n_shards = 2};
  write_tiny_model(m, clean.path());
  write_tiny_model(m, d.path());
  d.write("consolidated.safetensors", "garbage");
  d.write("pytorch_model.bin", "garbage");
  d.write("model-00001-of-00009.safetensors", "garbage");
  const auto c = Checkpoint::open(d.path());
  EXPECT_THAT(c->warnings(), ElementsAre(AllOf(HasSubstr("3 files are ignored"), HasSubstr("consolidated.safetensors"),
                                               HasSubstr("pytorch_model.bin"), HasSubstr("model-00001-of-00009.safetensors"))));
  const auto want = Checkpoint::open(clean.path());
  EXPECT_EQ(c->files().size(), want->files().size());
  EXPECT_EQ(read_all(*c, "model.norm.weight"), read_all(*want, "model.norm.weight"));
}

TEST(HfDirectory, TensorTheIndexDoesNotName) {
  const TempDirectory d;
  write_tiny_model({.n_shards = 2}, d.path());
  auto parts = take_apart(d.path("model-00001-of-00002.safetensors"));
  parts.header["lm_head.weight"] = {
      {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {parts.data.size(), parts.data.size() + 4}}};
  parts.data += "abcd";
  d.write("model-00001-of-00002.safetensors", put_together(parts));
  EXPECT_THAT(Checkpoint::open(d.path())->warnings(),
              ElementsAre(HasSubstr("lm_head.weight (model-00001-of-00002.safetensors, not in the index)")));
  json index = json::parse(read_file(d.path(kIndex)));
  index["weight_map"]["foo"] = "model-00001-of-00002.safetensors";
  d.write(kIndex, index.dump());
  EXPECT_THAT(open_error(d.path()), AllOf(HasSubstr("model-00001-of-00002.safetensors: no tensor 'foo'"), HasSubstr(kIndex)));
}

TEST(HfDirectory, MixedDtypesAndUnknownExtras) {  // RC-57
  const TempDirectory d;
  write_tiny_model({}, d.path());
  auto parts = take_apart(d.path("model.safetensors"));
  std::string norm;
  for (int i = 0; i < 64; ++i) {
    const float value = 1.0f + static_cast<float>(i) * 0x1p-20f;  // needs more bits than bf16 has
    norm.append(reinterpret_cast<const char*>(&value), 4);
  }
  replace_tensor(parts, "model.norm.weight", "F32", {64}, norm);
  parts.header["unused.filler2"] = parts.header["unused.filler"];
  std::string half;
  for (int i = 0; i < 64; ++i) half += std::string("\x01\x3C", 2);  // 1 + 2^-10 in f16
  replace_tensor(parts, "model.layers.0.input_layernorm.weight", "F16", {64}, half);
  d.write("model.safetensors", put_together(parts));
  const auto c = Checkpoint::open(d.path());
  EXPECT_EQ(c->natural_dtype(), DType::bf16);
  EXPECT_EQ(read_all(*c, "model.norm.weight")[3], 1.0f + 3 * 0x1p-20f);
  EXPECT_EQ(read_all(*c, "model.layers.0.input_layernorm.weight")[63], 1.0f + 0x1p-10f);
  EXPECT_THAT(c->warnings(), ElementsAre(HasSubstr("2 tensors are not used: unused.filler, unused.filler2")));
}

TEST(HfDirectory, WrongDtypeOrShapeIsNamed) {  // RC-57
  const TempDirectory d;
  write_tiny_model({}, d.path());
  const auto original = take_apart(d.path("model.safetensors"));
  auto parts = original;
  replace_tensor(parts, "model.norm.weight", "F64", {64}, std::string(512, '\0'));
  d.write("model.safetensors", put_together(parts));
  EXPECT_THAT(open_error(d.path()), HasSubstr("'model.norm.weight' has dtype F64; F32, F16 and BF16 are supported"));
  parts = original;
  replace_tensor(parts, "model.norm.weight", "BF16", {65}, std::string(130, '\0'));
  d.write("model.safetensors", put_together(parts));
  EXPECT_THAT(open_error(d.path()), HasSubstr("'model.norm.weight' has shape [65], the config asks for [64]"));
  parts = original;
  parts.header["model.layers.0.mlp.up_proj.weight"]["shape"] = {64, 96};
  d.write("model.safetensors", put_together(parts));
  EXPECT_THAT(open_error(d.path()),
              HasSubstr("'model.layers.0.mlp.up_proj.weight' has shape [64, 96], the config asks for [96, 64]"));
  parts = original;
  parts.header["renamed"] = parts.header["lm_head.weight"];
  parts.header.erase("lm_head.weight");
  d.write("model.safetensors", put_together(parts));
  EXPECT_THAT(open_error(d.path()), HasSubstr("'lm_head.weight' [320, 64] is missing (tie_word_embeddings is false)"));
}

TEST(HfDirectory, HeadsThatDoNotDivide) {  // RC-58
  const TempDirectory d;
  write_tiny_model({.n_heads = 6, .n_kv_heads = 4}, d.path());
  EXPECT_THAT(open_error(d.path()), HasSubstr("config.json: num_attention_heads 6 is not a multiple of num_key_value_heads 4"));
}

TEST(HfDirectory, HalfDownloaded) {
  const TempDirectory d;
  write_tiny_model({.n_shards = 3}, d.path());
  const std::string shard = d.path("model-00002-of-00003.safetensors"), whole = read_file(shard);
  std::filesystem::resize_file(shard, whole.size() - 1);
  EXPECT_THAT(open_error(d.path()), AllOf(HasSubstr("model-00002-of-00003.safetensors"), HasSubstr("cut short")));
  std::filesystem::resize_file(shard, 100);
  EXPECT_THAT(open_error(d.path()), HasSubstr("is announced, the file has 100"));
  std::filesystem::resize_file(shard, 3);
  EXPECT_THAT(open_error(d.path()), HasSubstr("3 bytes are no safetensors file"));
  d.write("model-00002-of-00003.safetensors", "version https://git-lfs.example/spec/v1\noid sha256:0123\nsize 71\n");
  EXPECT_THAT(open_error(d.path()), AllOf(HasSubstr("model-00002-of-00003.safetensors"), HasSubstr("a git-lfs pointer")));
  std::filesystem::remove(shard);
  std::filesystem::remove(d.path("model-00003-of-00003.safetensors"));
  EXPECT_THAT(open_error(d.path()), HasSubstr("2 missing: model-00002-of-00003.safetensors, model-00003-of-00003.safetensors"));
  std::filesystem::remove(d.path(kIndex));
  EXPECT_THAT(open_error(d.path()),
              AllOf(HasSubstr("no model.safetensors.index.json"), HasSubstr("model-00001-of-00003.safetensors")));
}

TEST(HfDirectory, NotAModel) {
  const TempDirectory d;
  EXPECT_THAT(open_error(d.path("nothing")), HasSubstr("no such file or directory"));
  EXPECT_THAT(open_error(d.path()), HasSubstr("no config.json and no .gguf file"));
  write_tiny_model({}, d.path());
  EXPECT_THAT(open_error(d.path("config.json")), HasSubstr("give the directory that holds it"));
  EXPECT_THAT(open_error(d.path("model.safetensors")), HasSubstr("give the directory that holds it"));
  std::filesystem::rename(d.path("model.safetensors"), d.path("pytorch_model.bin"));
  EXPECT_THAT(open_error(d.path()), HasSubstr("pickle files (pytorch_model.bin) are not read"));
  std::filesystem::remove(d.path("pytorch_model.bin"));
  EXPECT_THAT(open_error(d.path()), HasSubstr("no model.safetensors and no"));
}

TEST(HfDirectory, APipeIsNotWaitedFor) {
  const TempDirectory d;
  write_tiny_model({}, d.path());
  std::filesystem::remove(d.path("model.safetensors"));
  ASSERT_EQ(::mkfifo(d.path("model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(open_error(d.path()), HasSubstr("not a regular file"));
}

TEST(HfDirectory, LinksAreFollowed) {  // the layout of the hub's cache
  const TempDirectory blobs, d;
  write_tiny_model({}, blobs.path());
  for (const auto& entry : std::filesystem::directory_iterator(blobs.path())) {
    std::filesystem::create_symlink(entry.path(), d.path(entry.path().filename()));
  }
  EXPECT_THAT(Checkpoint::open(d.path())->warnings(), IsEmpty());
  std::filesystem::remove(blobs.path("model.safetensors"));
  EXPECT_THAT(open_error(d.path()), HasSubstr("model.safetensors: No such file"));
}

TEST(HfDirectory, FileCutWhileOpenIsAnError) {
  const TempDirectory d;
  write_tiny_model({}, d.path());
  const auto c = Checkpoint::open(d.path());
  std::filesystem::resize_file(d.path("model.safetensors"), 5000);
  try {
    read_all(*c, "model.norm.weight");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code, ExitCode::unreadable);
    EXPECT_THAT(e.what(), HasSubstr("bytes were there when it was opened"));
  }
}

TEST(HfDirectory, TemplateOfItsOwnFileWins) {
  const TempDirectory d;
  write_tiny_model({}, d.path());
  EXPECT_THAT(Checkpoint::open(d.path())->chat_template().value(), HasSubstr("im_start"));
  d.write("chat_template.jinja", "own");
  const auto c = Checkpoint::open(d.path());
  EXPECT_EQ(c->chat_template(), "own");
  EXPECT_THAT(c->tokenizer_config_json(), HasSubstr("im_start"));
  EXPECT_EQ(c->files().size(), 6u);
  d.write("chat_template.jinja", "\xC3");
  EXPECT_THAT(open_error(d.path()), HasSubstr("chat_template.jinja: byte 0 is not valid UTF-8"));
}

TEST(HfDirectory, WithoutTokenizer) {
  const TempDirectory d;
  write_tiny_model({}, d.path());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    std::filesystem::remove(d.path(name));
  const auto c = Checkpoint::open(d.path());
  EXPECT_EQ(c->tokenizer_json(), "");
  EXPECT_EQ(c->tokenizer_config_json(), "");
  EXPECT_EQ(c->chat_template(), std::nullopt);
  EXPECT_EQ(c->config().generation.do_sample, std::nullopt);
}

// Any byte of the header replaced: opens or is refused.
TEST(HfDirectory, EveryDamagedByteOpensOrIsRefused) {
  const TempDirectory d;
  write_tiny_model({.n_layers = 1, .hidden = 8, .n_heads = 2, .n_kv_heads = 1, .head_dim = 4, .ffn = 4, .vocab = 260},
                   d.path());
  const std::string whole = read_file(d.path("model.safetensors"));
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  int opened = 0, refused = 0;
  for (size_t i = 0; i < 8 + header; ++i) {
    for (const int flip : {0x01, 0x80}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      d.write("model.safetensors", damaged);
      try {
        read_all(*Checkpoint::open(d.path()), "lm_head.weight");
        ++opened;
      } catch (const Error& e) {
        ASSERT_EQ(e.code, ExitCode::unreadable) << e.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(opened, 0);  // padding, metadata
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace lockstep
