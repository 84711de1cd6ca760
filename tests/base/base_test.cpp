#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "base/utf8.h"

namespace lockstep {
namespace {

TEST(Error, CarriesTheCallersLine) {
  const int line = __LINE__ + 2;
  try {
    check(1 + 1 == 3, "sum ", 1 + 1, ", expected ", 3);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "sum 2, expected 3");
    EXPECT_EQ(e.where.line(), line);
    EXPECT_EQ(e.code, ExitCode::other);
  }
}

TEST(Bytes, RoundTripAndShortMessages) {
  ByteWriter w;
  w.put<int64_t>(-7);
  w.put_vector(std::vector<int32_t>{1, 2, 3});
  w.put_string("ключ");
  const auto bytes = w.bytes();
  ByteReader r(bytes);
  EXPECT_EQ(r.get<int64_t>(), -7);
  EXPECT_EQ(r.get_vector<int32_t>(), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(r.get_string(), "ключ");
  EXPECT_TRUE(r.at_end());
  for (size_t n = 0; n < bytes.size(); ++n) {
    ByteReader cut(std::span<const std::byte>(bytes).first(n));
    EXPECT_THROW((cut.get<int64_t>(), cut.get_vector<int32_t>(), cut.get_string()), Error) << n;
  }
}

TEST(Hash, Crc32cOfTheStandardsExample) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);  // RFC 3720, B.4 uses the same polynomial
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c("56789", crc32c("1234")), 0xE3069283u);
}

TEST(Hash, DigestOfPiecesIsDigestOfTheWhole) {
  Digester d;
  d.add("lock");
  d.add("step");
  EXPECT_EQ(d.finish(), digest128("lockstep"));
  EXPECT_EQ(digest128("lockstep").hex().size(), 32u);
}

TEST(Philox, KnownAnswers) {  // Random123's kat_vectors, philox4x32-10
  EXPECT_EQ(philox4x32(0, {0, 0, 0, 0}), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(~uint64_t{0}, {~0u, ~0u, ~0u, ~0u}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(uint64_t{0x299f31d0} << 32 | 0xa4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_GT(uniform_open(0), 0.0f);
  EXPECT_LT(uniform_open(~0u), 1.0f);
}

TEST(Utf8, LossyDecodeTakesMaximalSubparts) {
  EXPECT_EQ(lossy_utf8("a\xE4\xB8z"), "a\uFFFDz");  // a cut three-byte character is one replacement
  EXPECT_EQ(lossy_utf8("\xF0\x9F\x91"), "\uFFFD");
  EXPECT_EQ(lossy_utf8("\xC0\x80"), "\uFFFD\uFFFD");            // overlong NUL
  EXPECT_EQ(lossy_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // surrogate
  EXPECT_EQ(find_invalid_utf8("界 ok"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("ab\xFF"), 2u);
  EXPECT_EQ(count_code_points("a界👍"), 3u);
}

}  // namespace
}  // namespace lockstep
