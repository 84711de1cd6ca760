// Against Hugging Face `tokenizers` on real tokenizer files: ids, decode, streamed decode, cut characters.
#include <gtest/gtest.h>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_golden.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Counts, so that a failure shows its extent; the first few differences of each kind are printed.
struct Tally {
  int n_equal = 0, n_total = 0;
  template <class T>
  void add(const T& got, const T& want, const std::string& what) {
    ++n_total;
    n_equal += got == want;
    if (got != want && n_total - n_equal <= 5)
      ADD_FAILURE() << what << "\n  got  " << ::testing::PrintToString(got) << "\n  want " << ::testing::PrintToString(want);
  }
};

std::vector<std::string> streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, std::string* all) {
  Detokenizer detokenizer(tokenizer, false);
  std::vector<std::string> chunks;
  for (const TokenId id : ids) chunks.push_back(detokenizer.push(id));
  for (const std::string& chunk : chunks) *all += chunk;
  *all += detokenizer.finish();
  return chunks;
}

std::vector<std::string> golden_stream(const json& stream) {
  std::vector<std::string> chunks;
  for (const json& chunk : stream) chunks.push_back(chunk.is_string() ? chunk.get<std::string>() : "");
  return chunks;
}

void check_decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, const json& entry, const std::string& text,
                  const std::string& what, Tally& decode, Tally& stream) {
  const std::string want = entry["dec"] == true ? text : entry["dec"].get<std::string>();
  decode.add(tokenizer.decode(ids, false), want, what + " decode");
  if (entry.contains("dec_skip")) decode.add(tokenizer.decode(ids, true), entry["dec_skip"].get<std::string>(), what + " skip");
  std::string all;
  const auto chunks = streamed(tokenizer, ids, &all);
  stream.add(all, want, what + " streamed, joined");
  if (entry.contains("stream")) stream.add(chunks, golden_stream(entry["stream"]), what + " streamed");
}

// `same_names`: the vocabulary is of the revision that the goldens were made with.
void check_goldens(const Tokenizer& tokenizer, const std::string& name, bool same_names = true) {
  const auto golden = golden_json("tokenizers/tok_" + name + ".json");
  const auto corpus = golden_json("corpus.json");
  ASSERT_TRUE(golden && corpus);
  std::map<std::string, std::string> texts;
  for (const json& entry : *corpus) texts[entry["name"]] = entry["text"];

  Tally ids, with_special, decode, stream, partial;
  std::map<std::string, std::vector<TokenId>> ids_of;
  for (const json& entry : (*golden)["encode"]) {
    const std::string corpus_name = entry["n"], &text = texts.at(corpus_name);
    const auto want = golden_ids(entry["ids"]);
    ids_of[corpus_name] = want;
    ids.add(tokenizer.encode(text, false), want, corpus_name);
    auto special = entry.contains("ids_sp") ? golden_ids(entry["ids_sp"]) : want;
    if (entry.contains("sp")) {
      const auto before = golden_ids(entry["sp"][0]), after = golden_ids(entry["sp"][1]);
      const bool brings_bos = !before.empty() && !want.empty() && want[0] == before.back();  // ours: no second one
      if (!brings_bos) special.insert(special.begin(), before.begin(), before.end());
      special.insert(special.end(), after.begin(), after.end());
    }
    with_special.add(tokenizer.encode(text, true), special, corpus_name + " with special tokens");
    check_decode(tokenizer, want, entry, text, corpus_name, decode, stream);
  }
  for (const json& entry : (*golden)["random_decode"])
    check_decode(tokenizer, golden_ids(entry["ids"]), entry, "", "random ids", decode, stream);
  for (const json& entry : (*golden)["partial"]) {
    const auto& all = ids_of.at(entry["n"]);
    const size_t cut = entry["cut"];
    const std::span<const TokenId> both(all);
    partial.add(tokenizer.decode(both.first(cut), false), entry["dec"].get<std::string>(), "head");
    partial.add(tokenizer.decode(both.subspan(cut), false), entry["dec_tail"].get<std::string>(), "tail");
  }
  for (const json& probe : same_names ? (*golden)["probe"] : json::array()) {
    const auto found = tokenizer.find(probe[1].get<std::string>());
    ids.add(found.value_or(-1), probe[0].get<TokenId>(), "find " + probe[1].get<std::string>());
  }
  const auto show = [&](const char* what, const Tally& tally) {
    std::printf("    %-16s %-14s %4d of %4d equal\n", name.c_str(), what, tally.n_equal, tally.n_total);
    EXPECT_GT(tally.n_total, 0);
    EXPECT_EQ(tally.n_equal, tally.n_total);
  };
  show("ids", ids), show("special", with_special), show("decode", decode), show("stream", stream), show("cut", partial);
}

class TokenizerGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, EqualsHuggingFace) {
  const auto file = golden_tokenizer(GetParam());
  if (!file) GTEST_SKIP() << "no golden tokenizer " << GetParam();
  check_goldens(Tokenizer::from_json(*file, ""), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Json, TokenizerGolden,
                         ::testing::Values("smollm2", "gpt2", "qwen2", "mistral-v1", "mistral-v3", "mistral-tekken", "phi3",
                                           "falcon"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

struct GgufCase {
  const char* name;
  const char* pre;
};
class TokenizerGoldenGguf : public ::testing::TestWithParam<GgufCase> {};

TEST_P(TokenizerGoldenGguf, EqualsHuggingFace) {
  const auto [name, pre] = GetParam();
  const auto file = golden_tokenizer(name);
  if (!file) GTEST_SKIP() << "no golden tokenizer " << name;
  GgufVocab vocab = gguf_vocab_of(json::parse(*file), pre);
  vocab.bos_id = 1;
  check_goldens(Tokenizer::from_gguf(vocab), name);
}

INSTANTIATE_TEST_SUITE_P(Gguf, TokenizerGoldenGguf,
                         ::testing::Values(GgufCase{"smollm2", "smollm"}, GgufCase{"gpt2", "gpt-2"}, GgufCase{"qwen2", "qwen2"},
                                           GgufCase{"mistral-tekken", "tekken"}, GgufCase{"falcon", "falcon"}),
                         [](const auto& param) {
                           std::string name = param.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// GGUF vocabularies that cannot travel with the project: dumps by tests/data/text/dump_gguf_vocab.py.
class TokenizerGoldenDump : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerGoldenDump, EqualsHuggingFace) {
  const char* folder = std::getenv("LOCKSTEP_VOCABS");
  if (folder == nullptr) GTEST_SKIP() << "LOCKSTEP_VOCABS names no folder (tests/data/text/dump_gguf_vocab.py)";
  const auto dump = read_file(std::string(folder) + "/" + GetParam() + ".json");
  if (!dump) GTEST_SKIP() << "no " << GetParam() << ".json in " << folder;
  check_goldens(Tokenizer::from_gguf(vocab_of_dump(json::parse(*dump))), GetParam(), false);
}

INSTANTIATE_TEST_SUITE_P(Dump, TokenizerGoldenDump, ::testing::Values("llama2", "llama3", "smollm2", "gpt2", "qwen2", "falcon"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace lockstep
