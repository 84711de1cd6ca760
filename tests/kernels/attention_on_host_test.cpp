// The attention kernels, run thread by thread on the host (on_host.h): against a double reference, and prefill, both kinds of
// decode and any way of cutting a sequence give the same bytes.
#include <gtest/gtest.h>
#include "tests/kernels/warpgroup_on_host.h"  // before the kernels

#include <numeric>
#include <random>

#undef __shared__
#define __shared__  // `memory`, below

#include "kernels/attention_decode.cuh"
#include "kernels/attention_kernels.cuh"
#include "kernels/attention_wgmma.cuh"

namespace lockstep::kernels {

namespace {

alignas(128) char memory[256 << 10];  // a block's shared memory

struct Shape {
  int n_heads, n_kv_heads, head_dim, window, length;
};

// One sequence whose pages lie out of order; its positions' queries, keys and values.
struct Case {
  Shape shape;
  int row_width;
  std::vector<__nv_bfloat16> qkv, pages;
  std::vector<int32_t> page_ids;

  explicit Case(const Shape& s) : shape(s), row_width((s.n_heads + 2 * s.n_kv_heads) * s.head_dim) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    qkv.resize(static_cast<size_t>(s.length) * static_cast<size_t>(row_width));
    for (auto& x : qkv) x = __float2bfloat16_rn(normal(random));
    const int n_pages = (s.length + kPagePositions - 1) / kPagePositions;
    for (int i = 0; i < n_pages; ++i) page_ids.push_back((i * 7 + 3) % (n_pages + 4));
    std::vector<int32_t> all(static_cast<size_t>(n_pages + 4));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    page_ids.assign(all.begin(), all.begin() + n_pages);
    pages.resize(all.size() * static_cast<size_t>(s.n_kv_heads * 2 * kPagePositions * s.head_dim));
    std::fill(pages.begin(), pages.end(), __float2bfloat16_rn(std::nanf("")));  // what nobody wrote must not be read
    for (int p = 0; p < s.length; ++p)
      for (int i = 0; i < 2 * s.n_kv_heads * s.head_dim; ++i) in_page(p, i) = at_row(p)[s.n_heads * s.head_dim + i];
  }
  // Element i of a position's keys and values, as they follow each other in a row of qkv.
  __nv_bfloat16& in_page(int p, int i) {
    const int d = shape.head_dim, part = i / (shape.n_kv_heads * d), head = i / d % shape.n_kv_heads,
              in_row = p % kPagePositions;
    const auto page = static_cast<size_t>(page_ids[static_cast<size_t>(p / kPagePositions)]);
    return pages[(((page * static_cast<size_t>(shape.n_kv_heads) + static_cast<size_t>(head)) * 2 + static_cast<size_t>(part)) *
                      kPagePositions +
                  static_cast<size_t>(in_row)) *
                     static_cast<size_t>(d) +
                 static_cast<size_t>(place_of_piece(d, in_row, i % d / 8) * 8 + i % 8)];
  }
  // As if positions from `end` on had never been.
  void forget(int end) {
    for (int p = end; p < shape.length; ++p)
      for (int i = 0; i < 2 * shape.n_kv_heads * shape.head_dim; ++i) in_page(p, i) = __float2bfloat16_rn(std::nanf(""));
  }
  const __nv_bfloat16* at_row(int p) const { return &qkv[static_cast<size_t>(p) * static_cast<size_t>(row_width)]; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape.head_dim)); }
};

enum class By { many, four_warps, each, few, each_async, few_async };  // four_warps: products of sm_90a; async: before sm_90

template <int kHeadDim>
void launch_on_host(const Attention& a, By by) {
  const int group = a.n_heads / a.n_kv_heads;
  const auto heads = static_cast<unsigned>(a.n_kv_heads);
  if (by == By::many)
    on_host::launch(dim3(static_cast<unsigned>(a.n_tiles), heads), 32 * kPrefillWarps, [&] { attend_many_rows<kHeadDim>(a); });
  else if (by == By::four_warps) {
    if constexpr (kHeadDim >= 64) on_host::launch(dim3(2), kWgmmaThreads, [&] { attend_tile_rows<kHeadDim>(a); });
  } else if (by == By::each || by == By::each_async) {
    const dim3 grid(heads, static_cast<unsigned>((a.n_each + kDecodeWarps - 1) / kDecodeWarps));
    on_host::launch(grid, 32 * kDecodeWarps, [&] {
      if (by == By::each)
        group <= 8 ? attend_one_token<kHeadDim, 8>(a) : attend_one_token<kHeadDim, 16>(a);
      else
        group <= 8 ? attend_one<kHeadDim, EightRows<kHeadDim>, AsyncTiles<kHeadDim>>(a, memory)
                   : attend_one<kHeadDim, SixteenRows<kHeadDim>, AsyncTiles<kHeadDim>>(a, memory);
    });
  } else {
    const dim3 grid(heads, static_cast<unsigned>(a.n_few));
    on_host::launch(grid, 32 * kDecodeWarps, [&] {
      if (by == By::few)
        a.few_rows <= 8 ? attend_few_rows<kHeadDim, 8>(a) : attend_few_rows<kHeadDim, 16>(a);
      else
        a.few_rows <= 8 ? attend_some<kHeadDim, EightRows<kHeadDim>, AsyncTiles<kHeadDim>>(a, memory)
                        : attend_some<kHeadDim, SixteenRows<kHeadDim>, AsyncTiles<kHeadDim>>(a, memory);
    });
  }
  EXPECT_EQ(n_bulk_copies, 0) << "on the way when the block ended";
}

// One step: positions [begin, end) are new.
struct Step {
  std::vector<__nv_bfloat16> out;
  int32_t q_offsets[2], kv_lengths[1], page_offsets[2], list[3] = {-1, 0, -1};
  std::vector<QueryTile> tiles;
  Attention a;

  Step(const Case& c, int begin, int end)
      : q_offsets{0, end - begin}, kv_lengths{end}, page_offsets{0, static_cast<int32_t>(c.page_ids.size())} {
    const Shape& s = c.shape;
    const int n = end - begin, group = s.n_heads / s.n_kv_heads, width = s.n_heads * s.head_dim;
    out.assign(static_cast<size_t>(n * width), __float2bfloat16_rn(77));
    for (int row = 0; row < n * group; row += kTileRows) tiles.push_back({0, row});
    a = {.out = out.data(),
         .out_stride = width,
         .qkv = c.at_row(begin),
         .qkv_stride = c.row_width,
         .n_heads = s.n_heads,
         .n_kv_heads = s.n_kv_heads,
         .head_dim = s.head_dim,
         .pages = c.pages.data(),
         .scale = c.scale(),
         .window = s.window,
         .q_offsets = q_offsets,
         .kv_lengths = kv_lengths,
         .page_offsets = page_offsets,
         .page_ids = c.page_ids.data(),
         .each = list,
         .n_each = 3,
         .few = list,
         .n_few = 3,
         .few_rows = std::min(n * group, kFewRows),
         .tiles = tiles.data(),
         .n_tiles = static_cast<int>(tiles.size())};
  }
  Step(const Step&) = delete;  // `a` points into it
};

// out[positions begin .. end) as one step computes them.
std::vector<float> attend(const Case& c, int begin, int end, By by) {
  const Shape& s = c.shape;
  const Step step(c, begin, end);
  const Attention& a = step.a;
  std::fill(std::begin(memory), std::end(memory), static_cast<char>(0xFF));  // NaN
  switch (s.head_dim) {
    case 16:
      launch_on_host<16>(a, by);
      break;
    case 32:
      launch_on_host<32>(a, by);
      break;
    case 64:
      launch_on_host<64>(a, by);
      break;
    default:
      launch_on_host<128>(a, by);
  }
  std::vector<float> values;
  for (const __nv_bfloat16 x : step.out) values.push_back(__bfloat162float(x));
  return values;
}

std::vector<double> reference(const Case& c, int position) {
  const Shape& s = c.shape;
  std::vector<double> out;
  for (int head = 0; head < s.n_heads; ++head) {
    const int kv_head = head / (s.n_heads / s.n_kv_heads), first = s.window > 0 ? std::max(0, position - s.window + 1) : 0;
    const auto dot = [&](int p) {
      double sum = 0;
      for (int i = 0; i < s.head_dim; ++i)
        sum += static_cast<double>(__bfloat162float(c.at_row(position)[head * s.head_dim + i])) *
               static_cast<double>(__bfloat162float(c.at_row(p)[(s.n_heads + kv_head) * s.head_dim + i]));
      return sum * static_cast<double>(c.scale());
    };
    std::vector<double> o(static_cast<size_t>(s.head_dim));
    double total = 0;
    for (int p = first; p <= position; ++p) {
      const double w = std::exp(dot(p));
      total += w;
      for (int i = 0; i < s.head_dim; ++i)
        o[static_cast<size_t>(i)] +=
            w * static_cast<double>(__bfloat162float(c.at_row(p)[(s.n_heads + s.n_kv_heads + kv_head) * s.head_dim + i]));
    }
    for (const double x : o) out.push_back(x / total);
  }
  return out;
}

class OnHost : public testing::TestWithParam<Shape> {};

// Weights are rounded to bf16 (2^-9 each, of values about 1 that average out) and so is the result.
TEST_P(OnHost, IsTheReference) {
  const Case c(GetParam());
  const auto out = attend(c, 0, c.shape.length, By::many);
  const auto width = static_cast<size_t>(c.shape.n_heads * c.shape.head_dim);
  for (int p = 0; p < c.shape.length; ++p) {
    const auto expected = reference(c, p);
    for (size_t i = 0; i < width; ++i) {
      const double got = static_cast<double>(out[static_cast<size_t>(p) * width + i]);
      ASSERT_NEAR(got, expected[i], 0x1p-8 * (std::abs(expected[i]) + 1)) << "position " << p << ", column " << i;
    }
  }
}

TEST_P(OnHost, HoweverItIsCutTheBytesAreTheSame) {
  const Case c(GetParam());
  const int length = c.shape.length, group = c.shape.n_heads / c.shape.n_kv_heads, width = c.shape.n_heads * c.shape.head_dim;
  const auto whole = attend(c, 0, length, By::many);
  const auto same = [&](int begin, int end, By by, const char* how) {
    const auto part = attend(c, begin, end, by);
    for (size_t i = 0; i < part.size(); ++i)
      ASSERT_EQ(part[i], whole[static_cast<size_t>(begin * width) + i])
          << how << ", position " << begin + static_cast<int>(i) / width;
  };
  same(length / 3, length, By::many, "in two parts");
  same(length - 1, length, By::many, "alone, as prefill");
  if (c.shape.head_dim >= 64) {
    same(0, length, By::four_warps, "products of four warps");
    same(length / 3, length, By::four_warps, "products of four warps, in two parts");
  }
  for (const int p : {0, 15, 16, 63, 64, length / 2, length - 1})
    if (p < length) {
      same(p, p + 1, By::each, "decode, one warp");
      same(p, p + 1, By::few, "decode, four warps");
      same(p, p + 1, By::each_async, "decode, one warp, small copies");
      same(p, p + 1, By::few_async, "decode, four warps, small copies");
    }
  if (const int few = kFewRows / group; few > 1 && length > few) same(length - few, length, By::few, "a few at a time");
}

std::string name_of(const testing::TestParamInfo<Shape>& p) {
  const Shape& s = p.param;
  return "heads" + std::to_string(s.n_heads) + "_kv" + std::to_string(s.n_kv_heads) + "_dim" + std::to_string(s.head_dim) +
         "_window" + std::to_string(s.window) + "_length" + std::to_string(s.length);
}

INSTANTIATE_TEST_SUITE_P(Shapes, OnHost,
                         testing::Values(Shape{4, 1, 128, 0, 150}, Shape{2, 2, 64, 0, 330}, Shape{8, 2, 16, 0, 70},
                                         Shape{3, 1, 32, 40, 200}, Shape{7, 1, 128, 65, 137}, Shape{1, 1, 64, 0, 1},
                                         Shape{16, 1, 16, 0, 129}, Shape{4, 1, 16, 0, 450}),
                         name_of);

// ---- decode ----

class DecodeOnHost : public testing::TestWithParam<Shape> {};

// Pages end anywhere, and behind a sequence's last position lies NaN: in its page, and in shared memory before the first tile.
TEST_P(DecodeOnHost, WhatLiesBeyondTheEndDoesNotMatter) {
  const Case whole(GetParam());
  const int group = whole.shape.n_heads / whole.shape.n_kv_heads, width = whole.shape.n_heads * whole.shape.head_dim;
  for (const int end : {1, 16, 50, 65, 79, whole.shape.length}) {
    Case c = whole;
    c.forget(end);
    std::vector<double> expected = reference(whole, end - 1);
    const auto prefill = attend(whole, end - 1, end, By::many);
    for (const By by : {By::each, By::few, By::each_async, By::few_async}) {
      const auto got = attend(c, end - 1, end, by);
      for (size_t i = 0; i < got.size(); ++i) {
        const double want = expected[i], have = static_cast<double>(got[i]);
        ASSERT_NEAR(have, want, 0x1p-8 * (std::abs(want) + 1))
            << "end " << end << ", way " << static_cast<int>(by) << ", column " << i;
        ASSERT_EQ(got[i], prefill[i]) << "end " << end << ", way " << static_cast<int>(by) << ", column " << i;
      }
    }
    for (const int n_rows : {8, 16}) {  // several new tokens
      const int n_new = n_rows / group;
      if (n_new < 2 || n_new > end) continue;
      const auto by_many = attend(whole, end - n_new, end, By::many), by_few = attend(c, end - n_new, end, By::few);
      ASSERT_EQ(by_many, by_few) << "end " << end << ", " << n_new << " new tokens of " << width << " columns";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecodeOnHost,
                         testing::Values(Shape{1, 1, 64, 0, 131}, Shape{1, 1, 128, 40, 90}, Shape{4, 1, 64, 40, 90},
                                         Shape{4, 1, 128, 0, 131}, Shape{8, 1, 64, 0, 90}, Shape{16, 2, 128, 40, 90},
                                         Shape{16, 1, 64, 40, 131}, Shape{16, 1, 128, 0, 90}),
                         name_of);

// What a chunk gives before anything is rounded to bf16: its sums of values, sum of weights and largest score of each row.
template <int kHeadDim, class Rows>
std::vector<float> chunk_of(const Case& c, int n_new, int end, int number) {
  const Step step(c, end - n_new, end);
  const int n_rows = n_new * c.shape.n_heads, n_values = kHeadDim + 2;
  std::vector<float> found(static_cast<size_t>(n_rows * n_values), 77);
  on_host::launch(dim3(1), 32, [&] {
    auto& ring = *reinterpret_cast<Ring<kHeadDim>*>(memory);
    auto* q = reinterpret_cast<__nv_bfloat16*>(&ring + 1);
    const Sequence s(step.a, 0, 0);
    copy_rows<kHeadDim>(q, kFewRows, step.a, s, 0, 0, static_cast<int>(threadIdx.x), 32);
    const Rows rows(step.a, s, 0, q, kFewRows);
    AsyncTiles<kHeadDim> tiles(ring, s.kv, number, 1);
    tiles.begin();
    typename Rows::Chunk chunk;
    rows.attend(chunk, tiles, c.scale() * kLog2E);
    tiles.end();
    const auto put = [&](int row, int i, float x) {
      if (row < n_rows) found[static_cast<size_t>(row * n_values + i)] = x;
    };
    chunk.visit([&](int row, int column, float x) { put(row, column, x); });
    chunk.visit_rows([&](int row, float sum, float max) { put(row, kHeadDim, sum), put(row, kHeadDim + 1, max); });
  });
  return found;
}

TEST(DecodeRows, EightGiveTheBitsOfSixteen) {
  const Case wide({4, 1, 128, 0, 150}), narrow({1, 1, 64, 70, 150});
  for (const int chunk : {0, 1, 2}) {
    for (const int n_new : {1, 2})
      EXPECT_EQ((chunk_of<128, EightRows<128>>(wide, n_new, 150, chunk)),
                (chunk_of<128, SixteenRows<128>>(wide, n_new, 150, chunk)))
          << "chunk " << chunk << ", " << n_new << " new tokens";
    EXPECT_EQ((chunk_of<64, EightRows<64>>(narrow, 7, 149, chunk)), (chunk_of<64, SixteenRows<64>>(narrow, 7, 149, chunk)))
        << "chunk " << chunk << " with a window";
  }
}

// One row's largest score is in the first chunk, the other's in the second, so that only one changes the scale of what it has.
TEST(DecodeRows, EachHasItsOwnLargestScore) {
  for (const int late : {0, 1}) {
    Case c({2, 1, 16, 0, 128});
    __nv_bfloat16* last = &c.qkv[127 * static_cast<size_t>(c.row_width)];
    for (int i = 0; i < 32; ++i) last[i] = __float2bfloat16_rn(i == late || i == 16 + 1 - late ? 4.0f : 0.0f);
    for (int i = 0; i < 2; ++i) c.in_page(i == 0 ? 100 : 5, i) = __float2bfloat16_rn(9);
    EXPECT_EQ(attend(c, 127, 128, By::each), attend(c, 127, 128, By::many)) << "late row " << late;
  }
}

// ---- pages ----

// Shared memory has 8 banks of 16 bytes: eight rows of a column of pieces that lie in different ones are read at once.
TEST(Pages, EightRowsOfAColumnLieInEightBanks) {
  for (const int head_dim : {16, 32, 64, 128, 256}) {
    const int n_pieces = head_dim / 8;
    for (int row = 0; row < kPagePositions; ++row) {
      std::vector<int> seen(static_cast<size_t>(n_pieces));
      for (int piece = 0; piece < n_pieces; ++piece) ++seen[static_cast<size_t>(place_of_piece(head_dim, row, piece))];
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << "each piece has a place; head_dim " << head_dim << ", row " << row;
    }
    for (int piece = 0; piece < n_pieces; ++piece)
      for (int begin = 0; begin < kPagePositions; begin += 8) {
        std::vector<int> seen(8);
        for (int row = begin; row < begin + 8; ++row)
          ++seen[static_cast<size_t>((row * n_pieces + place_of_piece(head_dim, row, piece)) % 8)];
        EXPECT_EQ(seen, std::vector<int>(8, 1)) << "head_dim " << head_dim << ", piece " << piece;
      }
  }
}

}  // namespace

}  // namespace lockstep::kernels
