// Sizes and times as people write them, and back. Text that is no size or time, is negative or doesn't fit gives nullopt.
//   parse_bytes("8G")   parse_bytes("1.5GiB")   parse_seconds("90s")   parse_seconds("1:30:00")
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// A number, then nothing or B (bytes), K M G T P or KiB MiB ... (powers of 1024, as Slurm's --mem), kB MB GB TB PB (powers of
// 1000). Upper or lower case. A fraction is rounded down to whole bytes.
std::optional<uint64_t> parse_bytes(std::string_view text);

// "90", "90s", "500ms", "4h", "2d", "1h30m", "mm:ss", "hh:mm:ss", and Slurm's "d-hh:mm:ss". A number alone is seconds.
std::optional<double> parse_seconds(std::string_view text);

std::string format_bytes(uint64_t bytes);    // "512 B", "1.50 GiB"
std::string format_seconds(double seconds);  // "350ms", "12.3s", "2m05s", "1h30m00s", "2d04h00m": parse_seconds reads it

}  // namespace lockstep
