#include "checkpoint/stored_type.h"

#include <bit>
#include <cstring>
#include <iterator>

#include "base/error.h"

// A block is a few bytes of scales and the packed codes of 32 or 256 values; offsets below are bytes within the block.
// Layout: ggml's quantisation formats as in GGUF v3.
namespace lockstep {

namespace {

using Byte = uint8_t;

uint16_t load16(const Byte* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }

uint32_t load32(const Byte* p) { return load16(p) | static_cast<uint32_t>(load16(p + 2)) << 16; }

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float from_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7FFFu, mantissa = bits & 0x3FFu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);  // exponent bias 15 to 127
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f);
  const uint32_t special = 0x7F800000u | mantissa << 13;
  const uint32_t exponent = magnitude >> 10;
  return std::bit_cast<float>(sign | (exponent == 0 ? subnormal : exponent == 31 ? special : normal));
}

float load_f16(const Byte* p) { return from_f16(load16(p)); }

constexpr float kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// ---- blocks of 32: value j < 16 in the low half of byte j, value j + 16 in the high half ----

void q4_0(const Byte* b, float* out) {  // d f16, qs[16]
  const float d = load_f16(b);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((b[2 + j] & 15) - 8) * d;
    out[j + 16] = static_cast<float>((b[2 + j] >> 4) - 8) * d;
  }
}

void q4_1(const Byte* b, float* out) {  // d f16, m f16, qs[16]
  const float d = load_f16(b), m = load_f16(b + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(b[4 + j] & 15) * d + m;
    out[j + 16] = static_cast<float>(b[4 + j] >> 4) * d + m;
  }
}

void q5_0(const Byte* b, float* out) {  // d f16, qh u32 (fifth bits), qs[16]
  const float d = load_f16(b);
  const uint32_t high = load32(b + 2);
  for (int j = 0; j < 16; ++j) {
    const int low_code = (b[6 + j] & 15) | static_cast<int>(high >> j & 1) << 4;
    const int high_code = (b[6 + j] >> 4) | static_cast<int>(high >> (j + 16) & 1) << 4;
    out[j] = static_cast<float>(low_code - 16) * d;
    out[j + 16] = static_cast<float>(high_code - 16) * d;
  }
}

void q5_1(const Byte* b, float* out) {  // d f16, m f16, qh u32, qs[16]
  const float d = load_f16(b), m = load_f16(b + 2);
  const uint32_t high = load32(b + 4);
  for (int j = 0; j < 16; ++j) {
    const int low_code = (b[8 + j] & 15) | static_cast<int>(high >> j & 1) << 4;
    const int high_code = (b[8 + j] >> 4) | static_cast<int>(high >> (j + 16) & 1) << 4;
    out[j] = static_cast<float>(low_code) * d + m;
    out[j + 16] = static_cast<float>(high_code) * d + m;
  }
}

void q8_0(const Byte* b, float* out) {  // d f16, qs i8[32]
  const float d = load_f16(b);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<int8_t>(b[2 + j])) * d;
}

void iq4_nl(const Byte* b, float* out) {  // d f16, qs[16]: indices of a fixed table
  const float d = load_f16(b);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * kIq4Values[b[2 + j] & 15];
    out[j + 16] = d * kIq4Values[b[2 + j] >> 4];
  }
}

// ---- blocks of 256: sub-blocks of 16 or 32 with scales of their own ----

void q2_k(const Byte* b, float* out) {  // scales[16] (scale low half, minimum high half), qs[64], d f16, dmin f16
  const float d = load_f16(b + 80), dmin = load_f16(b + 82);
  for (int sub = 0; sub < 16; ++sub) {  // 16 values each: half sub / 8, bit pair sub / 2 % 4
    const float scale = d * static_cast<float>(b[sub] & 15), minimum = dmin * static_cast<float>(b[sub] >> 4);
    const Byte* q = b + 16 + sub / 8 * 32 + sub % 2 * 16;
    const int shift = sub / 2 % 4 * 2;
    for (int j = 0; j < 16; ++j) out[sub * 16 + j] = scale * static_cast<float>(q[j] >> shift & 3) - minimum;
  }
}

void q3_k(const Byte* b, float* out) {  // hmask[32] (third bits), qs[64], scales[12] (6 bits each), d f16
  const float d = load_f16(b + 108);
  const Byte* packed = b + 96;
  for (int sub = 0; sub < 16; ++sub) {
    const int low = sub < 8 ? packed[sub] & 15 : packed[sub - 8] >> 4;
    const int code = low | (packed[8 + sub % 4] >> (sub / 4 * 2) & 3) << 4;
    const float scale = d * static_cast<float>(code - 32);
    const Byte* q = b + 32 + sub / 8 * 32 + sub % 2 * 16;
    const Byte* high = b + sub % 2 * 16;
    const int shift = sub / 2 % 4 * 2;
    for (int j = 0; j < 16; ++j) {
      const int value = (q[j] >> shift & 3) - (high[j] >> (sub / 2) & 1 ? 0 : 4);
      out[sub * 16 + j] = scale * static_cast<float>(value);
    }
  }
}

struct ScaleAndMinimum {
  float scale, minimum;
};

// Sub-block `sub` (of 8) of the 12 bytes that hold 8 scales and 8 minima of 6 bits.
ScaleAndMinimum k_scales(const Byte* s, int sub) {
  if (sub < 4) return {static_cast<float>(s[sub] & 63), static_cast<float>(s[sub + 4] & 63)};
  return {static_cast<float>((s[sub + 4] & 15) | (s[sub - 4] >> 6) << 4),
          static_cast<float>((s[sub + 4] >> 4) | (s[sub] >> 6) << 4)};
}

void q4_k(const Byte* b, float* out) {  // d f16, dmin f16, scales[12], qs[128]
  const float d = load_f16(b), dmin = load_f16(b + 2);
  for (int sub = 0; sub < 8; ++sub) {
    const auto [s, m] = k_scales(b + 4, sub);
    const float scale = d * s, minimum = dmin * m;
    const Byte* q = b + 16 + sub / 2 * 32;
    const int shift = sub % 2 * 4;
    for (int j = 0; j < 32; ++j) out[sub * 32 + j] = scale * static_cast<float>(q[j] >> shift & 15) - minimum;
  }
}

void q5_k(const Byte* b, float* out) {  // d f16, dmin f16, scales[12], qh[32] (fifth bits), qs[128]
  const float d = load_f16(b), dmin = load_f16(b + 2);
  for (int sub = 0; sub < 8; ++sub) {
    const auto [s, m] = k_scales(b + 4, sub);
    const float scale = d * s, minimum = dmin * m;
    const Byte *high = b + 16, *q = b + 48 + sub / 2 * 32;
    const int shift = sub % 2 * 4;
    for (int j = 0; j < 32; ++j) {
      const int code = (q[j] >> shift & 15) | (high[j] >> sub & 1) << 4;
      out[sub * 32 + j] = scale * static_cast<float>(code) - minimum;
    }
  }
}

void q6_k(const Byte* b, float* out) {  // ql[128], qh[64], scales i8[16], d f16
  const float d = load_f16(b + 208);
  for (int sub = 0; sub < 8; ++sub) {  // 32 values each: half sub / 4, quarter sub % 4
    const int half = sub / 4, quarter = sub % 4;
    const Byte* low = b + half * 64 + quarter % 2 * 32;
    const Byte* high = b + 128 + half * 32;
    const int low_shift = quarter / 2 * 4, high_shift = quarter * 2;
    for (int j = 0; j < 32; ++j) {
      const int code = (low[j] >> low_shift & 15) | (high[j] >> high_shift & 3) << 4;
      const float scale = d * static_cast<float>(static_cast<int8_t>(b[192 + sub * 2 + j / 16]));
      out[sub * 32 + j] = scale * static_cast<float>(code - 32);
    }
  }
}

void iq4_xs(const Byte* b, float* out) {  // d f16, scales_h u16, scales_l[4], qs[128]
  const float d = load_f16(b);
  const int scales_high = load16(b + 2);
  for (int sub = 0; sub < 8; ++sub) {
    const int code = (b[4 + sub / 2] >> (sub % 2 * 4) & 15) | (scales_high >> (sub * 2) & 3) << 4;
    const float scale = d * static_cast<float>(code - 32);
    const Byte* q = b + 8 + sub * 16;
    for (int j = 0; j < 16; ++j) {
      out[sub * 32 + j] = scale * kIq4Values[q[j] & 15];
      out[sub * 32 + j + 16] = scale * kIq4Values[q[j] >> 4];
    }
  }
}

struct TypeRow {
  BlockLayout layout;
  void (*block)(const Byte*, float*);
};

// In the order of StoredType.
constexpr TypeRow kTypes[] = {
    {{"f32", 1, 4}, nullptr},     {{"f16", 1, 2}, nullptr},   {{"bf16", 1, 2}, nullptr},      {{"q4_0", 32, 18}, q4_0},
    {{"q4_1", 32, 20}, q4_1},     {{"q5_0", 32, 22}, q5_0},   {{"q5_1", 32, 24}, q5_1},       {{"q8_0", 32, 34}, q8_0},
    {{"iq4_nl", 32, 18}, iq4_nl}, {{"q2_k", 256, 84}, q2_k},  {{"q3_k", 256, 110}, q3_k},     {{"q4_k", 256, 144}, q4_k},
    {{"q5_k", 256, 176}, q5_k},   {{"q6_k", 256, 210}, q6_k}, {{"iq4_xs", 256, 136}, iq4_xs},
};
static_assert(std::size(kTypes) == static_cast<size_t>(StoredType::iq4_xs) + 1);

}  // namespace

const BlockLayout& layout_of(StoredType type) { return kTypes[static_cast<size_t>(type)].layout; }

void dequantize(StoredType type, const std::byte* blocks, int64_t n_values, float* out) {
  const auto* b = reinterpret_cast<const Byte*>(blocks);
  const auto& [layout, block] = kTypes[static_cast<size_t>(type)];
  check(n_values % layout.values == 0, n_values, " values in blocks of ", layout.values);
  switch (type) {
    case StoredType::f32:
      std::memcpy(out, b, static_cast<size_t>(n_values) * 4);
      return;
    case StoredType::f16:
      for (int64_t i = 0; i < n_values; ++i) out[i] = load_f16(b + 2 * i);
      return;
    case StoredType::bf16:
      for (int64_t i = 0; i < n_values; ++i) out[i] = from_bf16(load16(b + 2 * i));
      return;
    default:
      for (int64_t i = 0; i < n_values; i += layout.values, b += layout.bytes) block(b, out + i);
  }
}

}  // namespace lockstep
