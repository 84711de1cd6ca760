#include "base/hash.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/durable_file.h"
#include "base/error.h"
#include "base/signals.h"

namespace lockstep {

namespace {

using CrcTables = std::array<std::array<uint32_t, 256>, 8>;

constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0u);
    tables[0][i] = crc;
  }
  for (size_t t = 1; t < tables.size(); ++t)
    for (uint32_t i = 0; i < 256; ++i) tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xFF];
  return tables;
}

constexpr CrcTables kCrc = make_crc_tables();

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t seed) {
  uint32_t crc = ~seed;
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t n = bytes.size();
  for (; n >= 8; n -= 8, p += 8) {  // slicing by 8: eight table look-ups advance eight bytes
    uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= crc;
    crc = kCrc[7][low & 0xFF] ^ kCrc[6][(low >> 8) & 0xFF] ^ kCrc[5][(low >> 16) & 0xFF] ^ kCrc[4][low >> 24] ^
          kCrc[3][high & 0xFF] ^ kCrc[2][(high >> 8) & 0xFF] ^ kCrc[1][(high >> 16) & 0xFF] ^ kCrc[0][high >> 24];
  }
  for (; n > 0; --n, ++p) crc = (crc >> 8) ^ kCrc[0][(crc ^ *p) & 0xFF];
  return ~crc;
}

uint64_t hash64(std::string_view bytes, uint64_t seed) { return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed); }

std::string Digest::hex() const {
  std::string text(32, '0');
  for (size_t i = 0; i < 16; ++i) {
    text[15 - i] = "0123456789abcdef"[high >> (4 * i) & 15];
    text[31 - i] = "0123456789abcdef"[low >> (4 * i) & 15];
  }
  return text;
}

Digest digest128(std::string_view bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.high64, h.low64};
}

Digester::Digester() : state_(XXH3_createState()) { XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_)); }
Digester::~Digester() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void Digester::add(std::string_view bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}
Digest Digester::finish() const {
  const XXH128_hash_t h = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
  return {h.high64, h.low64};
}

Digest digest_file(const std::string& path) {
  int error = 0;
  const FileHandle file = try_open(path, O_RDONLY, error);
  if (error != 0) fail(ExitCode::unreadable, path, ": ", std::strerror(error));
  std::vector<char> block(size_t{4} << 20);
  Digester digester;
  for (;;) {
    leave_if_stopped();
    const ssize_t n = ::read(file.get(), block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ExitCode::unreadable, path, ": ", std::strerror(errno));
    if (n == 0) break;
    digester.add({block.data(), static_cast<size_t>(n)});
  }
  return digester.finish();
}

}  // namespace lockstep
