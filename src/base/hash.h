// Digests and checksums. crc32c guards journal lines against torn and damaged writes; XXH3 identifies content (not a
// defence against somebody who forges it).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

uint32_t crc32c(std::string_view bytes, uint32_t seed = 0);  // Castagnoli, RFC 3720; crc32c("123456789") = 0xE3069283
uint64_t hash64(std::string_view bytes, uint64_t seed = 0);  // XXH3

struct Digest {
  uint64_t high = 0, low = 0;
  auto operator<=>(const Digest&) const = default;
  std::string hex() const;  // 32 lower-case digits
};
Digest digest128(std::string_view bytes);

// Content of a whole file, read in large blocks. Throws Error (unreadable) with the path, Error (stopped) after a stop signal.
Digest digest_file(const std::string& path);

// Digest of a stream of pieces.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(const Digester&) = delete;
  Digester& operator=(const Digester&) = delete;
  void add(std::string_view bytes);
  Digest finish() const;

 private:
  void* state_;
};

}  // namespace lockstep
