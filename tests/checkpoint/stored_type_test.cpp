#include "checkpoint/stored_type.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep {
namespace {

std::vector<float> decode(StoredType type, const std::vector<uint8_t>& bytes) {
  const BlockLayout& layout = layout_of(type);
  EXPECT_EQ(bytes.size() % static_cast<size_t>(layout.bytes), 0u);
  std::vector<float> out(bytes.size() / static_cast<size_t>(layout.bytes) * static_cast<size_t>(layout.values));
  dequantize(type, reinterpret_cast<const std::byte*>(bytes.data()), static_cast<int64_t>(out.size()), out.data());
  return out;
}

TEST(StoredType, BlocksVisibleByEye) {
  std::vector<uint8_t> block = {0x00, 0x40};                              // d = 2 in f16
  for (int j = 0; j < 16; ++j) block.push_back(static_cast<uint8_t>(j));  // low codes 0..15, high codes 0
  const auto q4_0 = decode(StoredType::q4_0, block);
  EXPECT_EQ(q4_0[0], -16);  // (0 - 8) * 2
  EXPECT_EQ(q4_0[9], 2);    // (9 - 8) * 2
  EXPECT_EQ(q4_0[16], -16);
  block.insert(block.begin() + 2, {0x00, 0x3C});  // m = 1
  const auto q4_1 = decode(StoredType::q4_1, block);
  EXPECT_EQ(q4_1[0], 1);
  EXPECT_EQ(q4_1[15], 31);
  EXPECT_EQ(q4_1[31], 1);
}

TEST(StoredType, PlainTypes) {
  EXPECT_EQ(decode(StoredType::bf16, {0x80, 0x3F, 0x00, 0xC0}), (std::vector<float>{1, -2}));
  EXPECT_EQ(decode(StoredType::f32, {0, 0, 0x80, 0x3F}), (std::vector<float>{1}));
}

TEST(StoredType, EveryF16) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float got = decode(StoredType::f16, {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8)})[0];
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float sign = bits >> 15 ? -1.0f : 1.0f;
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(got)) << bits;
      continue;
    }
    const float want = exponent == 31  ? sign * INFINITY
                       : exponent == 0 ? sign * std::ldexp(static_cast<float>(mantissa), -24)
                                       : sign * std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << bits;
  }
}

// Rows of random blocks and their values, made by another implementation: the same bits are expected.
TEST(StoredType, GoldenBlocks) {
  std::ifstream in(LOCKSTEP_SHARED "/goldens/gguf_blocks.json");
  if (!in) GTEST_SKIP() << "no golden data";
  const auto golden = nlohmann::json::parse(in);
  int n_types = 0;
  for (const auto& [name, type] :
       {std::pair("F16", StoredType::f16), std::pair("Q4_0", StoredType::q4_0), std::pair("Q4_1", StoredType::q4_1),
        std::pair("Q5_0", StoredType::q5_0), std::pair("Q5_1", StoredType::q5_1), std::pair("Q8_0", StoredType::q8_0),
        std::pair("Q2_K", StoredType::q2_k), std::pair("Q3_K", StoredType::q3_k), std::pair("Q4_K", StoredType::q4_k),
        std::pair("Q5_K", StoredType::q5_k), std::pair("Q6_K", StoredType::q6_k), std::pair("IQ4_NL", StoredType::iq4_nl),
        std::pair("IQ4_XS", StoredType::iq4_xs)}) {
    const auto& rows = golden.at(name);
    EXPECT_EQ(layout_of(type).values, rows.at("block").get<int>());
    EXPECT_EQ(layout_of(type).bytes, rows.at("bytes").get<int>());
    ASSERT_FALSE(rows.at("hex").empty());
    for (size_t r = 0; r < rows.at("hex").size(); ++r) {
      const std::string hex = rows["hex"][r];
      std::vector<uint8_t> bytes;
      for (size_t i = 0; i < hex.size(); i += 2)
        bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
      const auto got = decode(type, bytes);
      const auto want = rows.at("f32")[r].get<std::vector<float>>();
      ASSERT_EQ(got.size(), want.size()) << name;
      for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i]) << name << " row " << r << " value " << i;
    }
    ++n_types;
  }
  EXPECT_EQ(n_types, 13);
}

TEST(StoredType, PartsOfBlocksAreRefused) {
  float out[32];
  const std::byte bytes[18] = {};
  EXPECT_THROW(dequantize(StoredType::q4_0, bytes, 31, out), Error);
}

}  // namespace
}  // namespace lockstep
