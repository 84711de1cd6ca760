// Split GGUF files and directories of GGUF files (RC-61).
#include "checkpoint/gguf_split.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/files.h"
#include "checkpoint/gguf_builder.h"
#include "support/tiny_model.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kParts[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};

// The small model in three parts: metadata and no tensor, then half of the tensors each.
void write_parts(const TempDirectory& d) {
  auto whole = small_llama();
  GgufBuilder parts[3];
  parts[0].metadata = whole.metadata;
  parts[0].u32("split.tensors.count", static_cast<uint32_t>(whole.tensors.size()));
  for (size_t i = 0; i < whole.tensors.size(); ++i) parts[1 + i % 2].tensors.push_back(whole.tensors[i]);
  for (uint32_t i = 0; i < 3; ++i) {
    parts[i].u32("split.no", i);
    parts[i].u32("split.count", 3);
    d.write(kParts[i], parts[i].build());
  }
}

TEST(SplitName, ParsesOnlyThePattern) {
  const auto name = parse_split_name("/a/b-00002-of-00010.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "/a/b");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 10);
  EXPECT_EQ(split_name(*name, 10), "/a/b-00010-of-00010.gguf");
  for (const char* other : {"b.gguf", "b-2-of-3.gguf", "b-00004-of-00003.gguf", "b-00000-of-00003.gguf",
                            "b-00001-of-0000x.gguf", "", "b-00001-of-00003.gguff"}) {
    EXPECT_FALSE(parse_split_name(other)) << other;
  }
}

TEST(SplitGguf, AnyPartOpensTheWhole) {
  const TempDirectory d, single;
  write_parts(d);
  const auto want = Checkpoint::open(single.write("m.gguf", small_llama().build()));
  for (const std::string& path : {d.path(kParts[0]), d.path(kParts[1]), d.path(kParts[2]), d.path()}) {
    const auto c = Checkpoint::open(path);
    EXPECT_EQ(c->files().size(), 3u);
    EXPECT_EQ(c->identity_paths().size(), 3u);
    for (const char* name : {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
                             "model.layers.0.mlp.up_proj.weight", "model.norm.weight"}) {
      EXPECT_EQ(read_all(*c, name), read_all(*want, name)) << name;
    }
  }
}

TEST(SplitGguf, MissingPartsAreNamed) {
  const TempDirectory d;
  write_parts(d);
  std::filesystem::remove(d.path(kParts[1]));
  EXPECT_THAT(open_error(d.path(kParts[0])), AllOf(HasSubstr("of 3 parts"), HasSubstr("1 missing: m-00002-of-00003.gguf")));
  EXPECT_THAT(open_error(d.path()), HasSubstr("m-00002-of-00003.gguf"));
}

TEST(SplitGguf, PartsOfSomethingElse) {
  const TempDirectory d;
  write_parts(d);
  std::filesystem::copy(d.path(kParts[2]), d.path(kParts[1]), std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(open_error(d.path(kParts[0])), HasSubstr("says it is part 3 of 3, its name says 2 of 3"));

  write_parts(d);
  GgufBuilder other;
  other.add("foo", {2});
  other.add("token_embd.weight", {8, 6});
  d.write(kParts[2], other.build());
  EXPECT_THAT(open_error(d.path(kParts[0])), HasSubstr("'token_embd.weight' is in an earlier part too"));
  other.erase_tensor("token_embd.weight");
  d.write(kParts[2], other.build());
  EXPECT_THAT(open_error(d.path(kParts[0])), HasSubstr("11 tensors are announced, the parts hold 7"));
}

TEST(GgufDirectory, OneModelOpensSeveralAreListed) {
  const TempDirectory d;
  d.write("a.gguf", small_llama().build());
  EXPECT_TRUE(Checkpoint::open(d.path() + "/")->has("model.norm.weight"));
  d.write("b.gguf", small_llama().build());
  EXPECT_THAT(open_error(d.path()), HasSubstr("name one of 2 GGUF models: a.gguf, b.gguf"));
  EXPECT_TRUE(Checkpoint::open(d.path("b.gguf"))->has("model.norm.weight"));
}

// Some directories of GGUF files come with the config.json of the original; with safetensors beside it, these are read.
TEST(GgufDirectory, BesideAConfig) {
  const TempDirectory d;
  d.write("a.gguf", small_llama().build());
  d.write("config.json", "{}");
  EXPECT_EQ(Checkpoint::open(d.path())->format(), "gguf f32");
  write_tiny_model({}, d.path());
  const auto c = Checkpoint::open(d.path());
  EXPECT_EQ(c->format(), "safetensors bf16");
  EXPECT_THAT(c->warnings(), ElementsAre(HasSubstr("1 files are ignored: a.gguf")));
}

}  // namespace
}  // namespace lockstep
