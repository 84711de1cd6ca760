// F32x16: sixteen f32 lanes, the one vector type of the CPU kernels, as AVX-512, AVX2 + FMA or plain C++. Every operation is
// rounded once by IEEE 754 in each of them, so a kernel written on it gives the same bits whatever the machine.
// A kernels_*.cpp sets LOCKSTEP_ISA (0 generic, 1 AVX2, 2 AVX-512) and includes this; all of it lies in a namespace of that
// instruction set, and nothing of the standard library is instantiated here, so that no symbol compiled for a newer machine
// can be linked into code for an older one.
//   F32x16 acc = zero(); acc = fma(broadcast(x[k]), load(w + 16 * k), acc); store(out, acc);
#pragma once

#include <cstdint>

#ifndef LOCKSTEP_ISA
#define LOCKSTEP_ISA 0
#endif
#if LOCKSTEP_ISA == 2
#include <immintrin.h>
#define LOCKSTEP_ISA_NAMESPACE avx512
#elif LOCKSTEP_ISA == 1
#include <immintrin.h>
#define LOCKSTEP_ISA_NAMESPACE avx2
#else
#define LOCKSTEP_ISA_NAMESPACE generic
#endif
#define LOCKSTEP_INLINE inline __attribute__((always_inline))

namespace lockstep::LOCKSTEP_ISA_NAMESPACE {

constexpr int kLanes = 16;

// To bf16, nearest, ties to even; NaN stays a (quiet) NaN.
LOCKSTEP_INLINE uint16_t to_bf16(float x) {
  const auto u = __builtin_bit_cast(uint32_t, x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(u >> 16 | 0x40u);
  return static_cast<uint16_t>((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}
LOCKSTEP_INLINE float from_bf16(uint16_t x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16); }

// Meaning of the operations, lane by lane:
//   fma(a, b, c) = a b + c      max(a, b) = a > b ? a : b (b where one is NaN)      select_less(a, b, x, y) = a < b ? x : y
//   lanes_not_less(a, b): bit i set where a[i] >= b[i]
//   multiply(a, b, &high): low and high half of the 64-bit product      to_float(a): of a as a signed integer
//   power_of_two(t) = 2^n for t = 1.5 * 2^23 + n, n an integer in -126 .. 127: the rounding trick's float gives the exponent

#if LOCKSTEP_ISA == 2

struct F32x16 {
  __m512 v;
};
LOCKSTEP_INLINE F32x16 zero() { return {_mm512_setzero_ps()}; }
LOCKSTEP_INLINE F32x16 broadcast(float x) { return {_mm512_set1_ps(x)}; }
LOCKSTEP_INLINE F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
LOCKSTEP_INLINE F32x16 load(const uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
LOCKSTEP_INLINE __m512i bf16_bits(__m512 x) {  // in the low half of each lane
  const __m512i u = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_srli_epi32(_mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000)), 16);
}
LOCKSTEP_INLINE void store(float* p, F32x16 x) { _mm512_storeu_ps(p, x.v); }
LOCKSTEP_INLINE void store(uint16_t* p, F32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(bf16_bits(x.v)));
}
LOCKSTEP_INLINE F32x16 round_to_bf16(F32x16 x) { return {_mm512_castsi512_ps(_mm512_slli_epi32(bf16_bits(x.v), 16))}; }
LOCKSTEP_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
LOCKSTEP_INLINE F32x16 add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32x16 sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32x16 mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32x16 div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
LOCKSTEP_INLINE uint32_t lanes_not_less(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
LOCKSTEP_INLINE F32x16 power_of_two(F32x16 t) {
  const __m512i e = _mm512_slli_epi32(_mm512_castps_si512(t.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(e, _mm512_set1_epi32(127 << 23)))};
}

struct U32x16 {
  __m512i v;
};
LOCKSTEP_INLINE U32x16 broadcast_u32(uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
LOCKSTEP_INLINE U32x16 load_u32(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
LOCKSTEP_INLINE void store(uint32_t* p, U32x16 x) { _mm512_storeu_si512(p, x.v); }
LOCKSTEP_INLINE U32x16 add(U32x16 a, U32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
LOCKSTEP_INLINE U32x16 sub(U32x16 a, U32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
LOCKSTEP_INLINE U32x16 bit_and(U32x16 a, U32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
LOCKSTEP_INLINE U32x16 bit_xor(U32x16 a, U32x16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int kBits>
LOCKSTEP_INLINE U32x16 shift_right(U32x16 a) {
  return {_mm512_srli_epi32(a.v, kBits)};
}
LOCKSTEP_INLINE U32x16 multiply(U32x16 a, uint32_t b, U32x16* high) {
  const __m512i m = _mm512_set1_epi64(b);
  const __m512i even = _mm512_mul_epu32(a.v, m), odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), m);
  *high = {_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd)};
  return {_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32))};
}
LOCKSTEP_INLINE F32x16 to_float(U32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
LOCKSTEP_INLINE U32x16 bits_of(F32x16 a) { return {_mm512_castps_si512(a.v)}; }
LOCKSTEP_INLINE F32x16 float_of(U32x16 a) { return {_mm512_castsi512_ps(a.v)}; }

#elif LOCKSTEP_ISA == 1

struct F32x16 {
  __m256 a, b;
};
LOCKSTEP_INLINE F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
LOCKSTEP_INLINE F32x16 broadcast(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
LOCKSTEP_INLINE F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
LOCKSTEP_INLINE __m256 widen(const uint16_t* p) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
LOCKSTEP_INLINE F32x16 load(const uint16_t* p) { return {widen(p), widen(p + 8)}; }
LOCKSTEP_INLINE __m256i bf16_bits(__m256 x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256 quiet = _mm256_castsi256_ps(_mm256_or_si256(u, _mm256_set1_epi32(0x400000)));
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_srli_epi32(_mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), quiet, nan)), 16);
}
LOCKSTEP_INLINE void store(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
LOCKSTEP_INLINE void store(uint16_t* p, F32x16 x) {  // packus works within 128-bit halves: 0 2 1 3 puts them in order
  const __m256i packed = _mm256_packus_epi32(bf16_bits(x.a), bf16_bits(x.b));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
}
LOCKSTEP_INLINE F32x16 round_to_bf16(F32x16 x) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(bf16_bits(x.a), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(bf16_bits(x.b), 16))};
}
LOCKSTEP_INLINE F32x16 fma(F32x16 x, F32x16 y, F32x16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
LOCKSTEP_INLINE F32x16 add(F32x16 x, F32x16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
LOCKSTEP_INLINE F32x16 sub(F32x16 x, F32x16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
LOCKSTEP_INLINE F32x16 mul(F32x16 x, F32x16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
LOCKSTEP_INLINE F32x16 div(F32x16 x, F32x16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
LOCKSTEP_INLINE F32x16 max(F32x16 x, F32x16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
LOCKSTEP_INLINE F32x16 select_less(F32x16 l, F32x16 r, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(l.a, r.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(l.b, r.b, _CMP_LT_OQ))};
}
LOCKSTEP_INLINE uint32_t lanes_not_less(F32x16 x, F32x16 y) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ));
  return static_cast<uint32_t>(low | high << 8);
}
LOCKSTEP_INLINE __m256 power_of_two(__m256 t) {
  const __m256i e = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(e, _mm256_set1_epi32(127 << 23)));
}
LOCKSTEP_INLINE F32x16 power_of_two(F32x16 t) { return {power_of_two(t.a), power_of_two(t.b)}; }

struct U32x16 {
  __m256i a, b;
};
LOCKSTEP_INLINE U32x16 broadcast_u32(uint32_t x) {
  const __m256i v = _mm256_set1_epi32(static_cast<int>(x));
  return {v, v};
}
LOCKSTEP_INLINE U32x16 load_u32(const uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
LOCKSTEP_INLINE void store(uint32_t* p, U32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.b);
}
LOCKSTEP_INLINE U32x16 add(U32x16 x, U32x16 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
LOCKSTEP_INLINE U32x16 sub(U32x16 x, U32x16 y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
LOCKSTEP_INLINE U32x16 bit_and(U32x16 x, U32x16 y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
LOCKSTEP_INLINE U32x16 bit_xor(U32x16 x, U32x16 y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
template <int kBits>
LOCKSTEP_INLINE U32x16 shift_right(U32x16 x) {
  return {_mm256_srli_epi32(x.a, kBits), _mm256_srli_epi32(x.b, kBits)};
}
LOCKSTEP_INLINE __m256i multiply(__m256i a, uint32_t b, __m256i* high) {
  const __m256i m = _mm256_set1_epi64x(b);
  const __m256i even = _mm256_mul_epu32(a, m), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}
LOCKSTEP_INLINE U32x16 multiply(U32x16 a, uint32_t b, U32x16* high) {
  return {multiply(a.a, b, &high->a), multiply(a.b, b, &high->b)};
}
LOCKSTEP_INLINE F32x16 to_float(U32x16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
LOCKSTEP_INLINE U32x16 bits_of(F32x16 x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
LOCKSTEP_INLINE F32x16 float_of(U32x16 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }

#else

struct F32x16 {
  float v[kLanes];
};
template <class F>
LOCKSTEP_INLINE F32x16 each_lane(F f) {
  F32x16 r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = f(i);
  return r;
}
LOCKSTEP_INLINE F32x16 broadcast(float x) {
  return each_lane([&](int) { return x; });
}
LOCKSTEP_INLINE F32x16 zero() { return broadcast(0.0f); }
LOCKSTEP_INLINE F32x16 load(const float* p) {
  return each_lane([&](int i) { return p[i]; });
}
LOCKSTEP_INLINE F32x16 load(const uint16_t* p) {
  return each_lane([&](int i) { return from_bf16(p[i]); });
}
LOCKSTEP_INLINE void store(float* p, const F32x16& x) {
  for (int i = 0; i < kLanes; ++i) p[i] = x.v[i];
}
LOCKSTEP_INLINE void store(uint16_t* p, const F32x16& x) {
  for (int i = 0; i < kLanes; ++i) p[i] = to_bf16(x.v[i]);
}
LOCKSTEP_INLINE F32x16 round_to_bf16(const F32x16& x) {
  return each_lane([&](int i) { return from_bf16(to_bf16(x.v[i])); });
}
LOCKSTEP_INLINE F32x16 fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return each_lane([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
LOCKSTEP_INLINE F32x16 add(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.v[i] + b.v[i]; });
}
LOCKSTEP_INLINE F32x16 sub(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.v[i] - b.v[i]; });
}
LOCKSTEP_INLINE F32x16 mul(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.v[i] * b.v[i]; });
}
LOCKSTEP_INLINE F32x16 div(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.v[i] / b.v[i]; });
}
LOCKSTEP_INLINE F32x16 max(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
LOCKSTEP_INLINE F32x16 select_less(const F32x16& a, const F32x16& b, const F32x16& x, const F32x16& y) {
  return each_lane([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
}
LOCKSTEP_INLINE uint32_t lanes_not_less(const F32x16& a, const F32x16& b) {
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(a.v[i] >= b.v[i]) << i;
  return bits;
}
LOCKSTEP_INLINE F32x16 power_of_two(const F32x16& t) {
  return each_lane(
      [&](int i) { return __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, t.v[i]) << 23) + (127u << 23)); });
}

struct U32x16 {
  uint32_t v[kLanes];
};
template <class F>
LOCKSTEP_INLINE U32x16 each_lane_u32(F f) {
  U32x16 r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = f(i);
  return r;
}
LOCKSTEP_INLINE U32x16 broadcast_u32(uint32_t x) {
  return each_lane_u32([&](int) { return x; });
}
LOCKSTEP_INLINE U32x16 load_u32(const uint32_t* p) {
  return each_lane_u32([&](int i) { return p[i]; });
}
LOCKSTEP_INLINE void store(uint32_t* p, const U32x16& x) {
  for (int i = 0; i < kLanes; ++i) p[i] = x.v[i];
}
LOCKSTEP_INLINE U32x16 add(const U32x16& a, const U32x16& b) {
  return each_lane_u32([&](int i) { return a.v[i] + b.v[i]; });
}
LOCKSTEP_INLINE U32x16 sub(const U32x16& a, const U32x16& b) {
  return each_lane_u32([&](int i) { return a.v[i] - b.v[i]; });
}
LOCKSTEP_INLINE U32x16 bit_and(const U32x16& a, const U32x16& b) {
  return each_lane_u32([&](int i) { return a.v[i] & b.v[i]; });
}
LOCKSTEP_INLINE U32x16 bit_xor(const U32x16& a, const U32x16& b) {
  return each_lane_u32([&](int i) { return a.v[i] ^ b.v[i]; });
}
template <int kBits>
LOCKSTEP_INLINE U32x16 shift_right(const U32x16& a) {
  return each_lane_u32([&](int i) { return a.v[i] >> kBits; });
}
LOCKSTEP_INLINE U32x16 multiply(const U32x16& a, uint32_t b, U32x16* high) {
  *high = each_lane_u32([&](int i) { return static_cast<uint32_t>(uint64_t{a.v[i]} * b >> 32); });
  return each_lane_u32([&](int i) { return a.v[i] * b; });
}
LOCKSTEP_INLINE F32x16 to_float(const U32x16& a) {
  return each_lane([&](int i) { return static_cast<float>(static_cast<int32_t>(a.v[i])); });
}
LOCKSTEP_INLINE U32x16 bits_of(const F32x16& a) {
  return each_lane_u32([&](int i) { return __builtin_bit_cast(uint32_t, a.v[i]); });
}
LOCKSTEP_INLINE F32x16 float_of(const U32x16& a) {
  return each_lane([&](int i) { return __builtin_bit_cast(float, a.v[i]); });
}

#endif

// The first n lanes from memory, `fill` in the others; and the way back. For the ends of rows.
template <class T>
LOCKSTEP_INLINE F32x16 load_first(const T* p, int n, float fill = 0.0f) {
  if (n >= kLanes) return load(p);
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = fill;
  for (int i = 0; i < n; ++i) {
    if constexpr (sizeof(T) == 4) {
      lanes[i] = p[i];
    } else {
      lanes[i] = from_bf16(p[i]);
    }
  }
  return load(lanes);
}
template <class T>
LOCKSTEP_INLINE void store_first(T* p, F32x16 x, int n) {
  if (n >= kLanes) return store(p, x);
  T lanes[kLanes];
  store(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

// The fixed trees over lanes: i with i + 8, then + 4, + 2, + 1.
LOCKSTEP_INLINE float sum_lanes(F32x16 x) {
  float s[kLanes];
  store(s, x);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) s[i] = s[i] + s[i + half];
  }
  return s[0];
}
LOCKSTEP_INLINE float max_lanes(F32x16 x) {
  float s[kLanes];
  store(s, x);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) s[i] = s[i] > s[i + half] ? s[i] : s[i + half];
  }
  return s[0];
}

// e^x to 1.1 ulp for -87 <= x <= 88; exactly 0 below (so nothing denormal), infinity above, NaN of NaN.
LOCKSTEP_INLINE F32x16 exp(F32x16 x) {
  const F32x16 round = broadcast(0x1.8p+23f);
  const F32x16 t = fma(x, broadcast(0x1.715476p+0f), round);  // x / ln 2
  const F32x16 n = sub(t, round);
  F32x16 r = fma(n, broadcast(-0x1.62e430p-1f), x);
  r = fma(n, broadcast(0x1.05c610p-29f), r);  // |r| <= ln 2 / 2; now e^r = 1 + r + r^2 P(r), Chebyshev fit, 8e-9
  F32x16 p = broadcast(0x1.6d113cp-10f);
  p = fma(p, r, broadcast(0x1.120ba2p-7f));
  p = fma(p, r, broadcast(0x1.55551ap-5f));
  p = fma(p, r, broadcast(0x1.5554dcp-3f));
  p = fma(p, r, broadcast(0.5f));
  p = add(fma(p, mul(r, r), r), broadcast(1.0f));
  F32x16 e = mul(p, power_of_two(t));
  e = select_less(broadcast(88.0f), x, broadcast(__builtin_inff()), e);
  return select_less(x, broadcast(-87.0f), zero(), e);
}

}  // namespace lockstep::LOCKSTEP_ISA_NAMESPACE
