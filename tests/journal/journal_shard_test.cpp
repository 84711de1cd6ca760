#include "journal/shard.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/journal/fake_job.h"

namespace lockstep {
namespace {

struct Found {
  ShardScan scan;
  std::vector<std::string> records;
};

Found scan_bytes(const std::string& bytes, int64_t epoch = 3, uint64_t from = 0, uint64_t limit = UINT64_MAX) {
  const Scratch scratch;
  const std::string path = scratch / "shard";
  write_file(path, bytes);
  Found found;
  found.scan = scan_shard(path, epoch, from, limit,
                          [&](const ScannedLine& line) { found.records.push_back(bytes.substr(line.offset, line.length)); });
  return found;
}

std::string line_of(const std::string& record, int64_t epoch = 3) {
  std::string line;
  append_line(line, {{1, 2}, 3, false, record}, epoch);
  return line;
}

TEST(JournalShard, ALineToTheEye) {
  std::string line;
  append_line(line, {{0x0123456789abcdef, 0xfedcba9876543210}, 0x11, true, R"({"a":1})"}, 12);
  EXPECT_EQ(line.substr(8), " e 0123456789abcdeffedcba9876543210 0000000000000011 12 {\"a\":1}\n");
  // The checksum is over what stands between the first blank and the line feed.
  const uint32_t crc = crc32c(R"(e 0123456789abcdeffedcba9876543210 0000000000000011 12 {"a":1})");
  EXPECT_EQ(std::stoul(line.substr(0, 8), nullptr, 16), crc);
  EXPECT_EQ(header_bytes(12), line.find('{'));

  const auto parsed = parse_line(std::string_view(line).substr(0, line.size() - 1), 12);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->id, (Digest{0x0123456789abcdef, 0xfedcba9876543210}));
  EXPECT_EQ(parsed->content, 0x11u);
  EXPECT_TRUE(parsed->failed);
  EXPECT_EQ(parsed->offset, header_bytes(12));
  EXPECT_EQ(parsed->length, 7u);
}

TEST(JournalShard, NamesRoundTripAndNothingElseIsAName) {
  EXPECT_EQ((ShardName{3, 2, 0}).file(), "e0003-w002.jsonl");
  EXPECT_EQ((ShardName{3, 2, 1}).file(), "e0003-w002b.jsonl");
  EXPECT_EQ((ShardName{12345, 1234, 0}).file(), "e12345-w1234.jsonl");
  for (const ShardName name : {ShardName{3, 2, 0}, ShardName{3, 2, 1}, ShardName{12345, 1234, 1}})
    EXPECT_EQ(parse_shard_name(name.file()), name);
  for (const char* other : {"", "e", "e0003", "e0003-w002", "e0003-w002c.jsonl", "e3-w2.jsonl", "e00003-w002.jsonl",
                            "e0003-w002.jsonl.tmp", "xe0003-w002.jsonl", "e0003-w99999999999.jsonl",
                            "e9999999999999999999-w000.jsonl", "e-003-w002.jsonl", "lock", "manifest.json"})
    EXPECT_EQ(parse_shard_name(other), std::nullopt) << other;
}

TEST(JournalShard, EverySingleChangedBitIsSeen) {
  const std::string good = line_of(R"({"text":"0123456789"})");
  ASSERT_EQ(scan_bytes(good).scan.n_lines, 1);
  for (size_t at = 0; at < good.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      const Found found = scan_bytes(bad);
      EXPECT_EQ(found.scan.n_lines, 0) << at << "." << bit;
      EXPECT_EQ(found.scan.valid_end, 0u);
    }
}

TEST(JournalShard, EveryTornEndIsSeen) {
  const std::string first = line_of("{\"n\":1}"), second = line_of("{\"n\":22}");
  for (size_t n = 0; n < second.size(); ++n) {
    const Found found = scan_bytes(first + second.substr(0, n));
    EXPECT_EQ(found.records, (std::vector<std::string>{"{\"n\":1}"}));
    EXPECT_EQ(found.scan.valid_end, first.size());
    EXPECT_EQ(found.scan.torn_bytes, n);
    EXPECT_EQ(found.scan.n_damaged, 0);
    EXPECT_EQ(found.scan.first_damage, n > 0 ? first.size() : 0);
  }
}

TEST(JournalShard, DamageInTheMiddleCostsItsLinesOnly) {
  const std::string a = line_of("{\"n\":1}"), b = line_of("{\"n\":2}"), c = line_of("{\"n\":3}");
  const std::vector<std::string> outer = {"{\"n\":1}", "{\"n\":3}"};
  std::string zeros = b;
  std::fill(zeros.begin(), zeros.begin() + 40, '\0');  // a block that never reached the disk
  const std::string garbage = "\xff\xfe{not a line}\n", interleaved = b.substr(0, 30) + a.substr(0, 20) + b.substr(30);
  for (const std::string& bad :
       {zeros, garbage, interleaved, std::string("\n"), line_of("{\"n\":2}", 2), std::string(9, ' ') + "\n"}) {
    const Found found = scan_bytes(a + bad + c);
    EXPECT_EQ(found.records, outer) << bad;
    EXPECT_EQ(found.scan.n_damaged, 1);
    EXPECT_EQ(found.scan.torn_bytes, 0u);
    EXPECT_EQ(found.scan.first_damage, a.size());
    EXPECT_EQ(found.scan.valid_end, (a + bad + c).size());
  }
  const Found all_zero = scan_bytes(std::string(10000, '\0'));
  EXPECT_EQ(all_zero.scan.n_lines, 0);
  EXPECT_EQ(all_zero.scan.torn_bytes, 10000u);
}

TEST(JournalShard, NothingBeyondTheLimitIsRead) {
  const std::string a = line_of("{\"n\":1}"), b = line_of("{\"n\":2}");
  EXPECT_EQ(scan_bytes(a + b, 3, 0, a.size()).records.size(), 1u);
  EXPECT_EQ(scan_bytes(a + b, 3, 0, a.size()).scan.torn_bytes, 0u);
  EXPECT_EQ(scan_bytes(a + b, 3, 0, a.size() + b.size()).records.size(), 2u);
  EXPECT_EQ(scan_bytes(a + b, 3, 0, 0).records.size(), 0u);
  const Found rest = scan_bytes(a + b, 3, a.size());
  EXPECT_EQ(rest.records, (std::vector<std::string>{"{\"n\":2}"}));
  EXPECT_EQ(rest.scan.valid_end, a.size() + b.size());
  EXPECT_EQ(scan_bytes(a, 3, 1000, 2000).scan.valid_end, 1000u);  // begins after the end of the file
}

TEST(JournalShard, LinesLongerThanABlockAndAcrossBlocks) {
  std::string bytes;
  std::vector<std::string> records;
  for (const size_t n : {1u, 100u, 1u << 20, (1u << 20) - 70, 3u << 20, 5u, 700000u, 700000u}) {
    records.push_back(std::string(n, 'x'));
    bytes += line_of(records.back());
  }
  const Found found = scan_bytes(bytes);
  EXPECT_EQ(found.records == records, true);
  EXPECT_EQ(found.scan.n_damaged, 0);
  EXPECT_EQ(found.scan.valid_end, bytes.size());
}

TEST(JournalShard, RecordsThatCannotBeALineAreRefused) {
  std::string line;
  EXPECT_THROW(append_line(line, {{1, 2}, 3, false, "{\n}"}, 1), Error);
  EXPECT_THROW(append_line(line, {{1, 2}, 3, false, ""}, 1), Error);
  EXPECT_EQ(line, "");
}

}  // namespace
}  // namespace lockstep
