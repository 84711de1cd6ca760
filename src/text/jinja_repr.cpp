// str() and repr(), as Python prints.
#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja_call.h"
#include "text/jinja_value.h"

#include <utf8proc.h>

#include <charconv>
#include <cmath>

namespace lockstep::jinja {

namespace {

bool is_printable(uint32_t c) {
  if (c < 0x80) return c >= 0x20 && c != 0x7F;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

void append_hex(std::string& out, char kind, int digits, uint32_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += '\\';
  out += kind;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kDigits[(value >> shift) & 15];
}

std::string text_repr(std::string_view text) {
  const bool double_quotes = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text, at);
    if (c.value == static_cast<uint32_t>(quote) || c.value == '\\') {
      out += '\\';
      out += static_cast<char>(c.value);
    } else if (c.value == '\n') {
      out += "\\n";
    } else if (c.value == '\r') {
      out += "\\r";
    } else if (c.value == '\t') {
      out += "\\t";
    } else if (is_printable(c.value)) {
      out += text.substr(at, c.length);
    } else if (c.value < 0x100) {
      append_hex(out, 'x', 2, c.value);
    } else if (c.value < 0x10000) {
      append_hex(out, 'u', 4, c.value);
    } else {
      append_hex(out, 'U', 8, c.value);
    }
    at += c.length;
  }
  return out + quote;
}

std::string scalar_text(const Value& value) {
  if (value.is_none()) return "None";
  if (const bool* b = value.boolean()) return *b ? "True" : "False";
  if (const int64_t* i = value.integer()) return std::to_string(*i);
  if (const double* r = value.real()) return float_repr(*r);
  if (const BigInteger* n = value.big_integer()) return n->digits;
  if (value.is_undefined()) return "Undefined";
  if (const Callable* c = value.callable()) {
    if (c->macro == nullptr) raise("a method or function can't be printed: '", c->name, "' without its parentheses?");
    return c->name.empty() ? "<Macro anonymous>" : concat("<Macro '", c->name, "'>");
  }
  return "";
}

void append_repr(std::string& out, const Value& value, Budget& budget, int depth) {
  budget.spend(1);
  if (depth > kMaxValueDepth) raise("a value too deep to print");
  if (const MarkedText* t = value.text()) {
    budget.spend_text(kCharacterCost * t->bytes.size());
    out += t->html_safe ? concat("Markup(", text_repr(t->bytes), ")") : text_repr(t->bytes);
  } else if (const Sequence* s = value.sequence()) {
    static constexpr const char* kOpen[] = {"[", "(", "", "dict_items([", "dict_keys([", "dict_values([", ""};
    static constexpr const char* kClose[] = {"]", ")", "", "])", "])", "])", ""};
    const auto type = static_cast<size_t>(s->type);
    if (s->type == Sequence::Type::generator) raise("a generator can't be printed; put it through |list or |join");
    if (s->type == Sequence::Type::range) raise("a range can't be printed; put it through |list or |join");
    out += kOpen[type];
    for (size_t i = 0; i < s->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, s->items[i], budget, depth + 1);
    }
    if (s->type == Sequence::Type::tuple && s->items.size() == 1) out += ',';
    out += kClose[type];
  } else if (const Dict* d = value.dict()) {
    out += '{';
    for (const auto& [key, item] : d->entries) {
      if (&key != &d->entries[0].first) out += ", ";
      append_repr(out, key, budget, depth + 1);
      out += ": ";
      append_repr(out, item, budget, depth + 1);
    }
    out += '}';
  } else if (const Object* o = value.object()) {
    if (o->type != Object::Type::space) raise("a ", type_name(value), " can't be printed");
    out += "<Namespace {";
    for (const auto& [key, item] : o->attributes) {
      if (&key != &o->attributes[0].first) out += ", ";
      out.append(text_repr(key)).append(": ");
      append_repr(out, item, budget, depth + 1);
    }
    out += "}>";
  } else {
    out += scalar_text(value);
  }
  if (out.size() > kMaxTextBytes) raise("a string grows over ", kMaxTextBytes, " bytes");
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto shortest = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(shortest.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);  // 1e-05, 1e+16: as Python writes it
  char fixed[40];
  const auto plain = std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed);
  std::string out(fixed, plain.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string repr(const Value& value, Budget& budget) {
  std::string out;
  append_repr(out, value, budget, 0);
  budget.spend_text(out.size());
  return out;
}

MarkedText to_text(const Value& value, Budget& budget) {
  if (const MarkedText* t = value.text()) {
    budget.spend_text(t->bytes.size());
    return *t;
  }
  if (value.is_undefined()) return {};
  const bool trusted = !holds_untrusted(value, budget);
  return {repr(value, budget), trusted};
}

}  // namespace lockstep::jinja
