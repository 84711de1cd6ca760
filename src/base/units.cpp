#include "base/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

namespace lockstep {

namespace {

constexpr double kMaxSeconds = 1e9;  // 31 years

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct Number {
  uint64_t whole = 0;
  double fraction = 0;  // in [0, 1)
  double value() const { return static_cast<double>(whole) + fraction; }
};

// Digits with at most one point, from the front of `text`, which loses them.
std::optional<Number> take_number(std::string_view& text) {
  Number number;
  const char* end = text.data() + text.size();
  if (text.empty() || !is_digit(text[0])) return std::nullopt;
  auto [stop, error] = std::from_chars(text.data(), end, number.whole);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  if (text.empty() || text[0] != '.') return number;
  text.remove_prefix(1);
  if (text.empty() || !is_digit(text[0])) return std::nullopt;
  for (double place = 0.1; !text.empty() && is_digit(text[0]); place /= 10, text.remove_prefix(1))
    number.fraction += place * (text[0] - '0');
  return number;
}

std::optional<uint64_t> factor_of(std::string_view unit) {
  if (unit.empty() || unit == "b") return 1;
  uint64_t binary = 1, decimal = 1;
  for (const char prefix : std::string_view("kmgtp")) {
    binary *= 1024;
    decimal *= 1000;
    if (unit[0] != prefix) continue;
    const std::string_view rest = unit.substr(1);
    if (rest.empty() || rest == "ib") return binary;
    if (rest == "b") return decimal;
  }
  return std::nullopt;
}

// Hours, minutes, seconds divided by colons; those after the first have two digits below 60.
std::optional<double> parse_clock(std::string_view text) {
  double seconds = 0;
  for (int part = 0; part < 3; ++part) {
    const size_t colon = text.find(':');
    std::string_view digits = text.substr(0, colon);
    const bool two_digits = digits.size() == 2;
    const auto number = take_number(digits);
    if (!number || !digits.empty() || number->fraction != 0) return std::nullopt;
    if (part > 0 && (!two_digits || number->whole >= 60)) return std::nullopt;
    seconds = seconds * 60 + static_cast<double>(number->whole);
    if (colon == std::string_view::npos) return part > 0 ? std::optional(seconds) : std::nullopt;
    text.remove_prefix(colon + 1);
  }
  return std::nullopt;
}

struct TimeUnit {
  std::string_view name;
  double seconds;
};
constexpr TimeUnit kTimeUnits[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"m", 60}, {"s", 1}, {"ms", 1e-3}};

// "1h30m": units from large to small, each once.
std::optional<double> parse_with_units(std::string_view text) {
  double seconds = 0, last_unit = std::numeric_limits<double>::infinity();
  while (!text.empty()) {
    const auto number = take_number(text);
    if (!number) return std::nullopt;
    size_t length = 0;
    while (length < text.size() && text[length] >= 'a' && text[length] <= 'z') ++length;
    double unit = 0;
    for (const TimeUnit& u : kTimeUnits)
      if (text.substr(0, length) == u.name) unit = u.seconds;
    if (unit == 0 || unit >= last_unit) return std::nullopt;
    seconds += number->value() * unit;
    last_unit = unit;
    text.remove_prefix(length);
  }
  return seconds;
}

}  // namespace

std::optional<uint64_t> parse_bytes(std::string_view text) {
  const std::string lowered = lower(text);
  std::string_view rest = lowered;
  const auto number = take_number(rest);
  if (!number) return std::nullopt;
  if (rest.size() > 1 && rest[0] == ' ') rest.remove_prefix(1);
  const auto factor = factor_of(rest);
  uint64_t bytes = 0;
  if (!factor || __builtin_mul_overflow(number->whole, *factor, &bytes)) return std::nullopt;
  const auto part = static_cast<uint64_t>(number->fraction * static_cast<double>(*factor));
  if (__builtin_add_overflow(bytes, part, &bytes)) return std::nullopt;
  return bytes;
}

std::optional<double> parse_seconds(std::string_view text) {
  const std::string lowered = lower(text);
  std::string_view rest = lowered;
  std::optional<double> seconds;
  if (const size_t dash = rest.find('-'); dash != std::string_view::npos) {
    std::string_view days = rest.substr(0, dash);
    const auto n_days = take_number(days);
    const auto clock = parse_clock(rest.substr(dash + 1));
    if (!n_days || !days.empty() || n_days->fraction != 0 || !clock || *clock >= 86400) return std::nullopt;
    seconds = static_cast<double>(n_days->whole) * 86400 + *clock;
  } else if (rest.find(':') != std::string_view::npos) {
    seconds = parse_clock(rest);
  } else {
    std::string_view digits = rest;
    const auto number = take_number(digits);
    if (!number) return std::nullopt;
    seconds = digits.empty() ? number->value() : parse_with_units(rest);
  }
  if (!seconds || *seconds > kMaxSeconds) return std::nullopt;
  return seconds;
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 6> kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  char text[48];
  if (bytes < 1024) {
    std::snprintf(text, sizeof text, "%d B", static_cast<int>(bytes));
    return text;
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kNames.size(); value /= 1024) ++unit;
  std::snprintf(text, sizeof text, "%.2f %s", value, kNames[unit]);
  return text;
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "unknown";
  if (seconds < 0) return std::string("-").append(format_seconds(-seconds));
  char text[64];
  if (seconds < 0.9995) {
    std::snprintf(text, sizeof text, "%.0fms", seconds * 1000);
  } else if (seconds < 59.95) {
    std::snprintf(text, sizeof text, "%.1fs", seconds);
  } else {
    const auto whole = static_cast<long long>(std::llround(std::min(seconds, 1e15)));
    const long long minutes = whole / 60, hours = minutes / 60, days = hours / 24;
    if (minutes < 60)
      std::snprintf(text, sizeof text, "%lldm%02llds", minutes, whole % 60);
    else if (hours < 24)
      std::snprintf(text, sizeof text, "%lldh%02lldm%02llds", hours, minutes % 60, whole % 60);
    else
      std::snprintf(text, sizeof text, "%lldd%02lldh%02lldm", days, hours % 24, minutes % 60);
  }
  return text;
}

}  // namespace lockstep
