#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string header_error(const std::string& text, uint64_t data_bytes) {
  try {
    parse_safetensors_header(text, data_bytes, "f");
  } catch (const Error& e) {
    EXPECT_EQ(e.code, ExitCode::unreadable);
    return e.what();
  }
  return "accepted";
}

std::string index_error(const std::string& text) {
  try {
    parse_weight_index(text, "f");
  } catch (const Error& e) {
    EXPECT_EQ(e.code, ExitCode::unreadable);
    return e.what();
  }
  return "accepted";
}

TEST(SafetensorsHeader, TwoTensors) {
  const auto entries = parse_safetensors_header(
      R"({"__metadata__": {"format": "pt"}, "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [4, 16]},
          "a": {"data_offsets": [0, 4], "shape": [], "dtype": "F32"}}   )",
      16, "f");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_THAT(entries[0].shape, ElementsAre());
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(safetensors_dtype_name(entries[1].dtype), "BF16");
  EXPECT_THAT(entries[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(entries[1].begin, 4u);
  EXPECT_EQ(entries[1].end, 16u);
}

TEST(SafetensorsHeader, LegalOddities) {
  EXPECT_TRUE(parse_safetensors_header("{}", 0, "f").empty());
  EXPECT_EQ(header_error(R"({"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})", 0), "accepted");
  EXPECT_EQ(header_error(R"({"a": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}})", 2), "accepted");
  EXPECT_EQ(header_error(R"({"a": {"dtype": "U8", "shape": [0, 9], "data_offsets": [4, 4]},
                             "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
                         4),
            "accepted");
}

TEST(SafetensorsHeader, Faults) {
  const struct {
    const char* text;
    uint64_t data_bytes;
    const char* says;
  } cases[] = {
      {"", 0, "not a safetensors header"},
      {" {}", 0, "not a safetensors header"},
      {"[]", 0, "not a safetensors header"},
      {"{", 0, "not valid JSON at byte"},
      {"{} x", 0, "not valid JSON at byte"},
      {"{\"\xFF\": 1}", 0, "not valid JSON at byte"},
      {R"({"a": 1})", 0, "unexpected number"},
      {R"({"a": null})", 0, "unexpected null"},
      {R"({"a": [1]})", 0, "unexpected array"},
      {R"({"a": {"dtype": "F32", "shape": [1]}})", 4, "lacks dtype, shape or data_offsets"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "x": 1}})", 4, "unknown field 'x'"},
      {R"({"a": {"dtype": "F32", "dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 4, "dtype twice"},
      {R"({"a": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}})", 4, "unknown dtype 'F33'"},
      {R"({"a": {"dtype": 5, "shape": [1], "data_offsets": [0, 4]}})", 4, "unexpected number"},
      {R"({"a": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}})", 4, "unexpected string"},
      {R"({"a": {"dtype": "F32", "shape": [[1]], "data_offsets": [0, 4]}})", 4, "unexpected array"},
      {R"({"a": {"dtype": "F32", "shape": [{}], "data_offsets": [0, 4]}})", 4, "unexpected object"},
      {R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4, "negative number"},
      {R"({"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}})", 4, "not an integer"},
      {R"({"a": {"dtype": "F32", "shape": [18446744073709551615], "data_offsets": [0, 4]}})", 4,
       "dimension 18446744073709551615"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})", 4, "data_offsets are two numbers"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2, 4]}})", 4, "data_offsets are two numbers"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})", 4, "lies at bytes 4..0 of 4"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 3, "is the file cut short?"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", 4, "do not give"},
      {R"({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}})", 1, "do not give"},
      // 2^31 x 2^31 x 4 bytes wraps to 0 in 64 bits of bytes, and in bits much earlier
      {R"({"a": {"dtype": "F32", "shape": [2147483648, 2147483648], "data_offsets": [0, 0]}})", 0, "do not give"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})", 8, "hole"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}})",
       6, "overlap"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
       4, "overlap"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 8, "tensors end at byte 4 of 8"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
       8, "'a' is there twice"},
      {R"({"__metadata__": {"a": 1}})", 0, "unexpected number"},
      {R"({"__metadata__": {}, "__metadata__": {}})", 0, "duplicate key '__metadata__'"},
      {R"({"__metadata__": {"a": {}}})", 0, "unexpected object"},
      {R"({"a": {"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1], "data_offsets": [0, 4]}})", 4,
       "too many dimensions"},
  };
  for (const auto& c : cases) EXPECT_THAT(header_error(c.text, c.data_bytes), HasSubstr(c.says)) << c.text;
}

TEST(SafetensorsHeader, DeepNestingCostsNothing) {
  EXPECT_THAT(header_error("{\"a\":" + std::string(1'000'000, '['), 0), HasSubstr("unexpected array"));
  EXPECT_THAT(index_error("{\"a\":" + std::string(1'000'000, '[')), HasSubstr("nested too deep"));
}

TEST(WeightIndex, ShardsInOrderOfMention) {
  const auto index = parse_weight_index(
      R"({"metadata": {"total_size": 1, "x": [1, {"y": null}]}, "weight_map": {"b": "2", "a": "1", "c": "2"}})", "f");
  EXPECT_THAT(index.shards, ElementsAre("2", "1"));
  ASSERT_EQ(index.entries.size(), 3u);
  EXPECT_EQ(index.entries[0].tensor, "a");
  EXPECT_EQ(index.entries[0].shard, 1u);
  EXPECT_EQ(index.entries[2].tensor, "c");
  EXPECT_EQ(index.entries[2].shard, 0u);
}

TEST(WeightIndex, Faults) {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {
      {"", "not valid JSON"},
      {"1", "no weight_map"},
      {"[]", "unexpected array"},
      {"{}", "no weight_map"},
      {R"({"weight_map": {}})", "no weight_map"},
      {R"({"weight_map": null})", "weight_map holds a null"},
      {R"({"weight_map": "x"})", "weight_map is not an object"},
      {R"({"weight_map": ["x"]})", "unexpected array"},
      {R"({"weight_map": {"a": 1}})", "weight_map holds a number"},
      {R"({"weight_map": {"a": {}}})", "weight_map holds an object"},
      {R"({"weight_map": {"a": "x"}, "weight_map": {"a": "x"}})", "duplicate key 'weight_map'"},
      {R"({"weight_map": {"a": "x", "a": "x"}})", "'a' is there twice"},
      {R"({"weight_map": {"a": "../x.safetensors"}})", "is not a plain file name"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "is not a plain file name"},
      {R"({"weight_map": {"a": ".."}})", "is not a plain file name"},
      {R"({"weight_map": {"a": ""}})", "is not a plain file name"},
      {R"({"weight_map": {"a": "x\u0000y"}})", "is not a plain file name"},
  };
  for (const auto& c : cases) EXPECT_THAT(index_error(c.text), HasSubstr(c.says)) << c.text;
}

TEST(WeightIndex, TooManyShards) {
  std::string text = R"({"weight_map": {"t": "s")";
  for (int i = 0; i < 10'001; ++i) text += ",\"t" + std::to_string(i) + "\":\"s" + std::to_string(i) + "\"";
  EXPECT_THAT(index_error(text + "}}"), HasSubstr("too many shards"));
}

}  // namespace
}  // namespace lockstep
