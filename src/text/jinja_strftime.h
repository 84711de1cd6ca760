// strftime in English, for a time given as text: templates never see the clock of the machine.
//   format_time("%d %b %Y", "2025-01-02 03:04:05") == "02 Jan 2025"
#pragma once

#include <string>
#include <string_view>

namespace lockstep::jinja {

// Whether `clock` is "YYYY-MM-DD HH:MM:SS" and a real date.
bool is_time(std::string_view clock);

// Raises on a directive it doesn't know.
std::string format_time(std::string_view format, std::string_view clock);

}  // namespace lockstep::jinja
