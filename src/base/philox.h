// Philox4x32-10: a counter-based generator, so that a draw depends on its key and counter alone: never on batch, slot,
// rank or the draws before it. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.
//   auto words = philox4x32(key, counter);   words[0..3] are independent uniform 32-bit integers
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

constexpr std::array<uint32_t, 4> philox4x32(uint64_t key, std::array<uint32_t, 4> counter) {
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// In the open interval (0, 1), exact in f32: 23 random bits and a half.
constexpr float uniform_open(uint32_t word) { return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f; }

}  // namespace lockstep
