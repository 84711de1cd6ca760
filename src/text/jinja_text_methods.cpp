// The methods of str.
#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja_call.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_ops.h"
#include "text/jinja_text_ops.h"

#include <utf8proc.h>

#include <algorithm>

namespace lockstep::jinja {

namespace {

using Args = Arguments;
using I = Interpreter;

const MarkedText& me(const Value& self) { return *self.text(); }

std::optional<std::string_view> separator_of(const Value* value, std::string_view function) {
  if (value == nullptr || value->is_none()) return std::nullopt;
  return text_argument(*value, function).bytes;
}
int64_t count_of(const Value* value, std::string_view function) {
  return value == nullptr ? -1 : integer_argument(*value, function);
}

Value split_method(I& i, const Value& self, Args& args) {
  const auto [sep, n] = bind(args, "split", {"sep", "maxsplit"});
  return make_list(split(me(self), separator_of(sep, "split"), count_of(n, "split"), i.budget), i.budget);
}
Value rsplit_method(I& i, const Value& self, Args& args) {
  const auto [sep, n] = bind(args, "rsplit", {"sep", "maxsplit"});
  return make_list(split_from_right(me(self), separator_of(sep, "rsplit"), count_of(n, "rsplit"), i.budget), i.budget);
}
Value splitlines_method(I& i, const Value& self, Args& args) {
  const auto [keep] = bind(args, "splitlines", {"keepends"});
  return make_list(split_lines(me(self), keep != nullptr && is_true(*keep), i.budget), i.budget);
}

template <bool left, bool right>
Value strip_method(I& i, const Value& self, Args& args) {
  const auto [chars] = bind(args, "strip", {"chars"});
  return i.text(
      strip(me(self), left, right, chars == nullptr || chars->is_none() ? nullptr : &text_argument(*chars, "strip"), i.budget));
}

Value replace_method(I& i, const Value& self, Args& args) {
  const auto [old_text, new_text, n] = bind(args, "replace", {"old", "new", "count"}, 2);
  return i.text(replace(me(self), text_argument(*old_text, "replace").bytes, text_argument(*new_text, "replace"),
                        count_of(n, "replace"), i.budget));
}

template <MarkedText (*map)(const MarkedText&, Budget&)>
Value case_method(I& i, const Value& self, Args& args) {
  if (!args.positional.empty() || !args.named.empty()) raise("a case method takes no arguments");
  return i.text(map(me(self), i.budget));
}
MarkedText title_case(const MarkedText& text, Budget& budget) { return title(text, false, budget); }

// The part [start:end] of self that find, count, startswith … look at, and its offset in bytes.
std::pair<std::string_view, size_t> part_of(I& i, const Value& self, const Value* start, const Value* end) {
  const std::string_view bytes = me(self).bytes;
  i.budget.spend_text(bytes.size());
  if (start == nullptr && end == nullptr) return {bytes, 0};
  const auto n = static_cast<int64_t>(count_code_points(bytes));
  const auto place = [&](const Value* v, int64_t fallback) {
    if (v == nullptr || v->is_none()) return fallback;
    const int64_t at = integer_argument(*v, "find");
    return at < 0 ? std::max<int64_t>(at < -n ? 0 : at + n, 0) : at;
  };
  const int64_t from = place(start, 0), to = std::min(place(end, n), n);
  if (from > to) return {{}, std::string_view::npos};  // nothing is found here, not even ""
  const size_t at = byte_offset(bytes, static_cast<size_t>(from));
  return {bytes.substr(at, byte_offset(bytes.substr(at), static_cast<size_t>(to - from))), at};
}

template <bool from_right, bool must_exist>
Value find_method(I& i, const Value& self, Args& args) {
  const auto [needle, start, end] = bind(args, "find", {"sub", "start", "end"}, 1);
  const auto [part, offset] = part_of(i, self, start, end);
  const std::string& wanted = text_argument(*needle, "find").bytes;
  size_t at = std::string_view::npos;
  if (from_right) i.budget.spend_text(kMirrorCost * part.size());
  if (offset != std::string_view::npos) at = from_right ? rfind_bytes(part, wanted) : find_bytes(part, wanted);
  if (at == std::string_view::npos) {
    if (must_exist) raise("substring not found");
    return Value(int64_t{-1});
  }
  return Value(static_cast<int64_t>(count_code_points(std::string_view(me(self).bytes).substr(0, offset + at))));
}

Value count_method(I& i, const Value& self, Args& args) {
  const auto [needle, start, end] = bind(args, "count", {"sub", "start", "end"}, 1);
  const auto [part, offset] = part_of(i, self, start, end);
  const std::string& wanted = text_argument(*needle, "count").bytes;
  if (offset == std::string_view::npos) return Value(int64_t{0});
  if (wanted.empty()) return Value(static_cast<int64_t>(count_code_points(part)) + 1);
  int64_t n = 0;
  for (size_t at = find_bytes(part, wanted); at != std::string_view::npos; at = find_bytes(part, wanted, at + wanted.size()))
    ++n;
  i.budget.spend_text(kPieceCost * static_cast<size_t>(n));
  return Value(n);
}

template <bool at_end>
Value affix_method(I& i, const Value& self, Args& args) {
  const auto [affix, start, end] = bind(args, at_end ? "endswith" : "startswith", {"prefix", "start", "end"}, 1);
  const std::string_view part = part_of(i, self, start, end).first;
  const auto matches = [&](const Value& value) {
    const std::string& wanted = text_argument(value, at_end ? "endswith" : "startswith").bytes;
    i.budget.spend_text(wanted.size());
    return at_end ? part.ends_with(wanted) : part.starts_with(wanted);
  };
  const Sequence* several = affix->sequence();
  if (several == nullptr || several->type != Sequence::Type::tuple) return Value(matches(*affix));
  i.budget.spend(several->items.size());
  return Value(std::any_of(several->items.begin(), several->items.end(), matches));
}

template <bool at_end>
Value remove_affix_method(I& i, const Value& self, Args& args) {
  const auto [affix] = bind(args, "removeprefix", {"prefix"}, 1);
  const std::string& wanted = text_argument(*affix, "removeprefix").bytes;
  const std::string& bytes = me(self).bytes;
  i.budget.spend_text(wanted.size());
  if (wanted.empty() || !(at_end ? bytes.ends_with(wanted) : bytes.starts_with(wanted))) return self;
  return i.text(at_end ? me(self).slice(0, bytes.size() - wanted.size()) : me(self).slice(wanted.size(), bytes.size()));
}

template <bool from_right>
Value partition_method(I& i, const Value& self, Args& args) {
  const auto [sep] = bind(args, "partition", {"sep"}, 1);
  const MarkedText& wanted = text_argument(*sep, "partition");
  if (wanted.bytes.empty()) raise("empty separator");
  const MarkedText& text = me(self);
  i.budget.spend_text((from_right ? kMirrorCost : 1) * text.bytes.size());
  const size_t at = from_right ? rfind_bytes(text.bytes, wanted.bytes) : find_bytes(text.bytes, wanted.bytes);
  std::vector<Value> parts;
  if (at == std::string_view::npos) {
    parts = {make_text("", true), make_text("", true)};
    parts.insert(from_right ? parts.end() : parts.begin(), self);
  } else {
    const size_t end = at + wanted.bytes.size();
    parts = {Value(text.slice(0, at)), Value(text.slice(at, end)), Value(text.slice(end, text.bytes.size()))};
  }
  return make_sequence(std::move(parts), i.budget, Sequence::Type::tuple);
}

Value join_method(I& i, const Value& self, Args& args) {
  const auto [items] = bind(args, "join", {"iterable"}, 1);
  MarkedText out;
  bool first = true;
  int64_t n = 0;
  for (const Value& item : iterate(*items, i.budget)) {
    if (item.text() == nullptr) raise("sequence item ", n, ": expected str instance, ", type_name(item), " found");
    if (!std::exchange(first, false)) out.append(me(self));
    out.append(*item.text());
    check_length(out);
    ++n;
  }
  return i.text(std::move(out));
}

template <bool left, bool right>
Value pad_method(I& i, const Value& self, Args& args) {
  const auto [width, fill] = bind(args, "ljust", {"width", "fillchar"}, 1);
  const MarkedText blank(" ", true);
  return i.text(pad(me(self), integer_argument(*width, "ljust"), left, right,
                    fill == nullptr ? blank : text_argument(*fill, "ljust"), i.budget));
}

Value zfill_method(I& i, const Value& self, Args& args) {
  const auto [width] = bind(args, "zfill", {"width"}, 1);
  const MarkedText& text = me(self);
  const int64_t wanted = std::max<int64_t>(integer_argument(*width, "zfill"), 0);
  const size_t sign = !text.bytes.empty() && (text.bytes[0] == '-' || text.bytes[0] == '+') ? 1 : 0;
  MarkedText out = text.slice(0, sign);
  out.append(pad(text.slice(sign, text.bytes.size()), wanted - static_cast<int64_t>(sign), true, false, MarkedText("0", true),
                 i.budget));
  return i.text(std::move(out));
}

Value format_method(I& i, const Value& self, Args& args) {
  return i.text(format_braces(me(self), args.positional, args.named, i.budget));
}

enum class Class { alpha, digit, alnum, space, upper, lower, ascii };

template <Class which>
Value class_method(I& i, const Value& self, Args&) {
  const std::string_view bytes = me(self).bytes;
  i.budget.spend_text(kCharacterCost * bytes.size());
  bool cased = false, all = true;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = decode_utf8(bytes, at);
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c.value));
    const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    const bool digit = category == UTF8PROC_CATEGORY_ND;
    const bool is_upper = category == UTF8PROC_CATEGORY_LU, is_lower = category == UTF8PROC_CATEGORY_LL;
    cased |= which == Class::upper ? is_upper : is_lower;
    switch (which) {
      case Class::alpha:
        all &= letter;
        break;
      case Class::digit:
        all &= digit;
        break;
      case Class::alnum:
        all &= letter || digit;
        break;
      case Class::space:
        all &= is_python_space(c.value);
        break;
      case Class::upper:
        all &= !is_lower && category != UTF8PROC_CATEGORY_LT;
        break;
      case Class::lower:
        all &= !is_upper && category != UTF8PROC_CATEGORY_LT;
        break;
      case Class::ascii:
        all &= c.value < 0x80;
        break;
    }
    at += c.length;
  }
  if (which == Class::upper || which == Class::lower) return Value(all && cased);
  return Value(all && (which == Class::ascii || !bytes.empty()));
}

constexpr NamedFunction kMethods[] = {
    {"split", split_method},
    {"rsplit", rsplit_method},
    {"splitlines", splitlines_method},
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"replace", replace_method},
    {"upper", case_method<upper>},
    {"lower", case_method<lower>},
    {"casefold", case_method<lower>},
    {"title", case_method<title_case>},
    {"capitalize", case_method<capitalize>},
    {"swapcase", case_method<swap_case>},
    {"find", find_method<false, false>},
    {"rfind", find_method<true, false>},
    {"index", find_method<false, true>},
    {"rindex", find_method<true, true>},
    {"count", count_method},
    {"startswith", affix_method<false>},
    {"endswith", affix_method<true>},
    {"removeprefix", remove_affix_method<false>},
    {"removesuffix", remove_affix_method<true>},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"join", join_method},
    {"ljust", pad_method<false, true>},
    {"rjust", pad_method<true, false>},
    {"center", pad_method<true, true>},
    {"zfill", zfill_method},
    {"format", format_method},
    {"isalpha", class_method<Class::alpha>},
    {"isdigit", class_method<Class::digit>},
    {"isdecimal", class_method<Class::digit>},
    {"isnumeric", class_method<Class::digit>},
    {"isalnum", class_method<Class::alnum>},
    {"isspace", class_method<Class::space>},
    {"isupper", class_method<Class::upper>},
    {"islower", class_method<Class::lower>},
    {"isascii", class_method<Class::ascii>},
};

}  // namespace

Function find_text_method(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const NamedFunction& m) { return m.name == name; });
  return found == std::end(kMethods) ? nullptr : found->function;
}

}  // namespace lockstep::jinja
