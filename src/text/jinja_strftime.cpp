#include "text/jinja_strftime.h"

#include "base/error.h"
#include "text/jinja_value.h"

#include <charconv>

namespace lockstep::jinja {

namespace {

struct Time {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
};

bool is_leap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int days_of_month(int year, int month) {
  static constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return kDays[month - 1] + (month == 2 && is_leap(year) ? 1 : 0);
}

bool read_time(std::string_view text, Time& time) {
  static constexpr std::string_view kShape = "dddd-dd-dd dd:dd:dd";
  if (text.size() != kShape.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kShape[i] == 'd' ? !digit : text[i] != kShape[i]) return false;
  }
  const auto number = [&](size_t at, size_t n) {
    int value = 0;
    std::from_chars(text.data() + at, text.data() + at + n, value);
    return value;
  };
  time = {number(0, 4), number(5, 2), number(8, 2), number(11, 2), number(14, 2), number(17, 2)};
  return time.year >= 1 && time.month >= 1 && time.month <= 12 && time.day >= 1 &&
         time.day <= days_of_month(time.year, time.month) && time.hour < 24 && time.minute < 60 && time.second < 60;
}

int day_of_year(const Time& t) {
  int day = t.day;
  for (int month = 1; month < t.month; ++month) day += days_of_month(t.year, month);
  return day;
}

// 0 = Sunday
int day_of_week(const Time& t) {
  const int before = t.year - 1;
  return (before * 365 + before / 4 - before / 100 + before / 400 + day_of_year(t)) % 7;
}

std::string padded(int value, int width, char fill) {
  std::string text = std::to_string(value);
  if (fill != 0 && static_cast<int>(text.size()) < width) text.insert(0, static_cast<size_t>(width) - text.size(), fill);
  return text;
}

std::string format_parts(std::string_view format, const Time& t);

std::string directive(char d, const Time& t, char fill) {
  static constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                                 "July",    "August",   "September", "October", "November", "December"};
  static constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  const std::string_view month = kMonths[t.month - 1], day = kDays[day_of_week(t)];
  const int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
  switch (d) {
    case 'Y':
      return std::to_string(t.year);
    case 'm':
      return padded(t.month, 2, fill);
    case 'd':
      return padded(t.day, 2, fill);
    case 'e':
      return padded(t.day, 2, fill == '0' ? ' ' : fill);
    case 'H':
      return padded(t.hour, 2, fill);
    case 'I':
      return padded(hour12, 2, fill);
    case 'M':
      return padded(t.minute, 2, fill);
    case 'S':
      return padded(t.second, 2, fill);
    case 'y':
      return padded(t.year % 100, 2, fill);
    case 'j':
      return padded(day_of_year(t), 3, fill);
    case 'f':
      return "000000";
    case 'B':
      return std::string(month);
    case 'b':
    case 'h':
      return std::string(month.substr(0, 3));
    case 'A':
      return std::string(day);
    case 'a':
      return std::string(day.substr(0, 3));
    case 'w':
      return std::to_string(day_of_week(t));
    case 'u':
      return std::to_string(day_of_week(t) == 0 ? 7 : day_of_week(t));
    case 'p':
      return t.hour < 12 ? "AM" : "PM";
    case 'F':
      return format_parts("%Y-%m-%d", t);
    case 'T':
    case 'X':
      return format_parts("%H:%M:%S", t);
    case 'R':
      return format_parts("%H:%M", t);
    case 'D':
    case 'x':
      return format_parts("%m/%d/%y", t);
    case 'c':
      return format_parts("%a %b %e %H:%M:%S %Y", t);
    case 'Z':
    case 'z':
      return "";  // as a time without zone prints
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case '%':
      return "%";
    default:
      raise("strftime_now: the directive %", d, " is not supported");
  }
}

std::string format_parts(std::string_view format, const Time& t) {
  std::string out;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    char fill = '0';
    ++at;
    if (format[at] == '-' && at + 1 < format.size()) fill = 0, ++at;
    out += directive(format[at], t, fill);
  }
  return out;
}

}  // namespace

bool is_time(std::string_view clock) {
  Time time;
  return read_time(clock, time);
}

std::string format_time(std::string_view format, std::string_view clock) {
  Time time;
  if (!read_time(clock, time)) raise("the time of the run is no YYYY-MM-DD HH:MM:SS");
  return format_parts(format, time);
}

}  // namespace lockstep::jinja
