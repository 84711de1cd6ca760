#include "checkpoint/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/hf_directory.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json small(const std::string& family = "llama") {
  return {{"model_type", family}, {"hidden_size", 64},        {"intermediate_size", 96}, {"num_hidden_layers", 4},
          {"vocab_size", 384},    {"num_attention_heads", 4}, {"num_key_value_heads", 2}};
}

ModelConfig parse(const json& config, std::vector<std::string>* warnings = nullptr) {
  std::vector<std::string> ignored;
  return parse_hf_config(config.dump(), "config.json", warnings ? *warnings : ignored);
}

std::string text_error(const std::string& text) {
  std::vector<std::string> warnings;
  try {
    parse_hf_config(text, "config.json", warnings);
  } catch (const Error& e) {
    EXPECT_EQ(e.code, ExitCode::unreadable);
    EXPECT_THAT(e.what(), HasSubstr("config.json"));
    return e.what();
  }
  return "accepted";
}

std::string error_with(const json& changes, const std::string& family = "llama") {
  json config = small(family);
  config.merge_patch(changes);
  return text_error(config.dump());
}

TEST(HfConfig, DefaultsOfTheFamilies) {
  const ModelConfig llama = parse(small());
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.max_positions, 2048);
  EXPECT_EQ(llama.rope.theta, 10000);
  EXPECT_EQ(llama.rms_eps, 1e-6f);
  EXPECT_FALSE(llama.tied_embeddings);
  EXPECT_THAT(llama.eos_token_ids, IsEmpty());
  EXPECT_EQ(llama.bos_token_id, std::nullopt);
  json no_kv = small();
  no_kv.erase("num_key_value_heads");
  EXPECT_EQ(parse(no_kv).n_kv_heads, 4);

  EXPECT_THAT(parse(small("mistral")).windows, Each(4096));
  EXPECT_TRUE(parse(small("qwen2")).qkv_bias);
  EXPECT_FALSE(parse(small("qwen2")).o_bias);
  EXPECT_EQ(parse(small("qwen3")).head_dim, 128);
  EXPECT_TRUE(parse(small("qwen3")).qk_norm);
}

TEST(HfConfig, BiasesFollowTheirKeys) {
  json config = small();
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  const ModelConfig c = parse(config);
  EXPECT_TRUE(c.qkv_bias && c.o_bias && c.mlp_bias);
}

TEST(HfConfig, HeadDimOfItsOwn) {  // RC-57
  json config = small();
  config["head_dim"] = 32;
  EXPECT_EQ(parse(config).head_dim, 32);
  config["head_dim"] = nullptr;
  EXPECT_EQ(parse(config).head_dim, 16);
}

TEST(HfConfig, Windows) {
  json config = small("mistral");
  config["sliding_window"] = nullptr;
  EXPECT_THAT(parse(config).windows, Each(0));
  config = small("llama");
  config["sliding_window"] = 16;
  EXPECT_THAT(parse(config).windows, Each(0));

  config = small("qwen2");
  config["sliding_window"] = 16;
  config["max_window_layers"] = 3;
  EXPECT_THAT(parse(config).windows, ElementsAre(0, 0, 0, 0));
  config["use_sliding_window"] = true;
  EXPECT_THAT(parse(config).windows, ElementsAre(0, 0, 0, 16));
  config["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(parse(config).windows, ElementsAre(16, 0, 16, 0));
  config["layer_types"] = {"sliding_attention"};
  EXPECT_THAT(text_error(config.dump()), HasSubstr("layer_types"));
  config["layer_types"] = {"sliding_attention", "full_attention", "chunked", "full_attention"};
  EXPECT_THAT(text_error(config.dump()), HasSubstr("\"chunked\""));
}

TEST(HfConfig, RopeInBothForms) {
  json config = small();
  config["rope_theta"] = 5e5;
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4}};
  EXPECT_EQ(parse(config).rope.scaling, RopeConfig::Scaling::linear);
  EXPECT_EQ(parse(config).rope.factor, 4);
  EXPECT_EQ(parse(config).rope.theta, 5e5);
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8},
                            {"low_freq_factor", 1},
                            {"high_freq_factor", 4},
                            {"original_max_position_embeddings", 64}};
  EXPECT_EQ(parse(config).rope.scaling, RopeConfig::Scaling::llama3);
  EXPECT_EQ(parse(config).rope.original_max_positions, 64);
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7}};
  EXPECT_EQ(parse(config).rope.scaling, RopeConfig::Scaling::none);
  EXPECT_EQ(parse(config).rope.theta, 7);
}

TEST(HfConfig, EosOneOrMany) {
  json config = small();
  config["eos_token_id"] = 3;
  EXPECT_THAT(parse(config).eos_token_ids, ElementsAre(3));
  config["eos_token_id"] = {3, 384, -1, 5};
  std::vector<std::string> warnings;
  EXPECT_THAT(parse(config, &warnings).eos_token_ids, ElementsAre(3, 5));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("384 is ignored"), HasSubstr("-1 is ignored")));
}

TEST(HfConfig, UnknownKeysAreIgnored) {
  json config = small();
  config["auto_map"] = {{"AutoConfig", "evil.py"}};
  config["_attn_implementation_internal"] = "someone/repo";
  EXPECT_EQ(parse(config).n_layers, 4);
}

TEST(HfConfig, WhatIsNotSupportedIsNamed) {
  EXPECT_THAT(error_with({{"model_type", "gemma2"}}),
              HasSubstr("model_type gemma2 is not supported; supported are LlamaForCausalLM"));
  EXPECT_THAT(error_with({{"model_type", nullptr}}), HasSubstr("model_type not given"));
  EXPECT_THAT(error_with({{"architectures", {"LlamaForSequenceClassification"}}}),
              HasSubstr("\"LlamaForSequenceClassification\""));
  EXPECT_THAT(error_with({{"architectures", {"MistralForCausalLM"}}}), HasSubstr("(model_type llama) is not supported"));
  EXPECT_THAT(error_with({{"rope_scaling", {{"type", "yarn"}, {"factor", 4}}}}),
              HasSubstr("'yarn' is not supported; default, linear and llama3"));
  EXPECT_THAT(error_with({{"rope_parameters", {{"full_attention", json::object()}}}}), HasSubstr("by layer type"));
  EXPECT_THAT(error_with({{"partial_rotary_factor", 0.5}}), HasSubstr("partial_rotary_factor 0.5"));
  EXPECT_THAT(error_with({{"hidden_act", "gelu"}}), HasSubstr("'gelu' is not supported; silu is"));
  EXPECT_THAT(error_with({{"quantization_config", {{"quant_method", "gptq"}}}}), HasSubstr("quant_method \"gptq\""));
}

TEST(HfConfig, NumbersThatMakeNoSense) {
  EXPECT_THAT(error_with({{"num_attention_heads", 6}, {"num_key_value_heads", 4}, {"head_dim", 16}}),  // RC-58
              HasSubstr("num_attention_heads 6 is not a multiple of num_key_value_heads 4"));
  EXPECT_THAT(error_with({{"num_attention_heads", 5}}), HasSubstr("hidden_size 64 is not a multiple of num_attention_heads 5"));
  EXPECT_THAT(error_with({{"num_attention_heads", 0}}), HasSubstr("num_attention_heads 0"));
  EXPECT_THAT(error_with({{"num_attention_heads", 0}, {"head_dim", 4}}), HasSubstr("num_attention_heads is 0"));
  EXPECT_THAT(error_with({{"num_key_value_heads", 0}}), HasSubstr("num_key_value_heads is 0"));
  EXPECT_THAT(error_with({{"num_hidden_layers", 1 << 30}}), HasSubstr("num_hidden_layers is 1073741824"));
  EXPECT_THAT(error_with({{"num_hidden_layers", -1}}), HasSubstr("num_hidden_layers is -1"));
  EXPECT_THAT(error_with({{"num_hidden_layers", 2.5}}), HasSubstr("num_hidden_layers is 2.5, an integer is expected"));
  EXPECT_THAT(error_with({{"num_hidden_layers", "4"}}), HasSubstr("num_hidden_layers is \"4\", an integer"));
  EXPECT_THAT(error_with({{"num_hidden_layers", 18446744073709551615u}}), HasSubstr("an integer is expected"));
  EXPECT_THAT(error_with({{"num_hidden_layers", nullptr}}), HasSubstr("no num_hidden_layers"));
  EXPECT_THAT(error_with({{"hidden_size", int64_t{1} << 62}}), HasSubstr("hidden_size is 4611686018427387904"));
  EXPECT_THAT(error_with({{"vocab_size", int64_t{1} << 40}}), HasSubstr("vocab_size is"));
  EXPECT_THAT(error_with({{"head_dim", 15}}), HasSubstr("head_dim 15 is odd"));
  EXPECT_THAT(error_with({{"rms_norm_eps", 0}}), HasSubstr("rms_norm_eps is 0"));
  EXPECT_THAT(error_with({{"rope_theta", -1}}), HasSubstr("rope_theta is -1"));
  EXPECT_THAT(error_with({{"rope_scaling", {{"type", "linear"}}}}), HasSubstr("no factor"));
  EXPECT_THAT(error_with({{"rope_scaling", {{"type", "linear"}, {"factor", 0}}}}),
              HasSubstr("factor of the RoPE scaling is 0"));
  EXPECT_THAT(
      error_with({{"rope_scaling", {{"type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}}}),
      HasSubstr("high_freq_factor 4 must be above low_freq_factor 4"));
  EXPECT_THAT(error_with({{"rope_scaling", 4}}), HasSubstr("rope_scaling is 4, an object is expected"));
  EXPECT_THAT(error_with({{"tie_word_embeddings", "true"}}), HasSubstr("true or false is expected"));
  EXPECT_THAT(error_with({{"sliding_window", 0}}, "mistral"), HasSubstr("sliding_window is 0"));
  EXPECT_THAT(error_with({{"eos_token_id", "2"}}), HasSubstr("eos_token_id is \"2\""));
  EXPECT_THAT(error_with({{"eos_token_id", {json::array({2})}}}), HasSubstr("an id or a list of ids"));
}

TEST(HfConfig, TextThatIsNoConfig) {
  EXPECT_THAT(text_error(""), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(text_error("[]"), HasSubstr("a JSON object is expected"));
  EXPECT_THAT(text_error("{\"a\": NaN}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(text_error(R"({"hidden_size": 1, "hidden_size": 2})"), HasSubstr("duplicate key 'hidden_size'"));
  EXPECT_THAT(text_error("{\"a\":" + std::string(100'000, '[')), HasSubstr("nested more than 64 deep"));
  std::string many = "{\"a\": [0";
  for (int i = 0; i < 300'000; ++i) many += ",0";
  EXPECT_THAT(text_error(many + "]}"), HasSubstr("too many values"));
}

TEST(GenerationConfig, DefaultsAndRanges) {
  std::vector<std::string> warnings;
  const auto parse_text = [&](const std::string& text) {
    return parse_generation_config(text, "generation_config.json", 100, warnings);
  };
  const GenerationDefaults none = parse_text(R"({"temperature": null, "transformers_version": "4.40"})");
  EXPECT_EQ(none.temperature, std::nullopt);
  const GenerationDefaults g = parse_text(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05,
    "repetition_penalty": 1.1, "max_new_tokens": 77, "eos_token_id": [1, 2]})");
  EXPECT_EQ(g.do_sample, true);
  EXPECT_EQ(g.temperature, 0.6);
  EXPECT_EQ(g.top_p, 0.9);
  EXPECT_EQ(g.top_k, 20);
  EXPECT_EQ(g.min_p, 0.05);
  EXPECT_EQ(g.repetition_penalty, 1.1);
  EXPECT_EQ(g.max_new_tokens, 77);
  EXPECT_THAT(g.eos_token_ids, ElementsAre(1, 2));
  for (const char* bad : {R"({"temperature": -1})", R"({"temperature": "1"})", R"({"top_p": 0})", R"({"top_p": 1.5})",
                          R"({"top_k": -1})", R"({"top_k": 1.5})", R"({"min_p": 2})", R"({"repetition_penalty": 0})",
                          R"({"max_new_tokens": 0})", R"({"do_sample": 1})"}) {
    EXPECT_THROW(parse_text(bad), Error) << bad;
  }
}

TEST(ChatTemplate, StringListOrNothing) {
  std::vector<std::string> warnings;
  const auto of = [&](const std::string& text) { return chat_template_of(text, "tokenizer_config.json", warnings); };
  EXPECT_EQ(of("{}"), std::nullopt);
  EXPECT_EQ(of(R"({"chat_template": null})"), std::nullopt);
  EXPECT_EQ(of(R"({"chat_template": "x"})"), "x");
  EXPECT_EQ(of(R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})"), "d");
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_EQ(of(R"({"chat_template": [{"name": "rag", "template": "t"}]})"), std::nullopt);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("1 others: rag")));
  for (const char* bad :
       {R"({"chat_template": 1})", R"({"chat_template": [1]})", R"({"chat_template": [{"name": 1, "template": "t"}]})",
        R"({"chat_template": [{"name": "default", "template": 1}]})", R"({"chat_template": {}})"}) {
    EXPECT_THROW(of(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace lockstep
