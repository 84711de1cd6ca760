#include "text/jinja_json.h"

#include "base/error.h"
#include "base/utf8.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace lockstep::jinja {

namespace {

// Builds values from the events of the JSON reader.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(bool trusted, Budget& budget) : trusted_(trusted), budget_(budget) {}

  Value result;

  bool null() override { return add(Value()); }
  bool boolean(bool value) override { return add(Value(value, trusted_)); }
  bool number_integer(number_integer_t value) override { return add(Value(int64_t{value}, trusted_)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return add(Value(static_cast<int64_t>(value), trusted_));
    return add_digits(std::to_string(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) return add_digits(text);
    return add(Value(double{value}, trusted_));
  }
  bool string(string_t& value) override { return add(make_text(value, trusted_)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool key(string_t& value) override {
    stack_.back().key = make_text(value, trusted_);
    return true;
  }
  bool end_object() override {
    Value done(std::make_shared<const Dict>(std::move(stack_.back().dict)));
    stack_.pop_back();
    return add(std::move(done));
  }
  bool end_array() override {
    Value done = make_list(std::move(stack_.back().items), budget_);
    stack_.pop_back();
    return add(std::move(done));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    raise("malformed JSON at byte ", position);
  }

 private:
  struct Level {
    bool is_object;
    Value key;
    Dict dict;
    std::vector<Value> items;
  };

  bool open(bool is_object) {
    if (stack_.size() >= static_cast<size_t>(kMaxJsonDepth)) raise("JSON nested deeper than ", kMaxJsonDepth);
    stack_.push_back({is_object, {}, {}, {}});
    return true;
  }
  bool add(Value value) {
    if (stack_.empty()) {
      result = std::move(value);
    } else if (stack_.back().is_object) {
      stack_.back().dict.set(std::move(stack_.back().key), std::move(value), budget_);
    } else {
      stack_.back().items.push_back(std::move(value));
    }
    return true;
  }
  bool add_digits(std::string digits) {
    Value value;
    value.data = std::make_shared<const BigInteger>(BigInteger{std::move(digits)});
    value.trusted = trusted_;
    return add(std::move(value));
  }

  bool trusted_;
  Budget& budget_;
  std::vector<Level> stack_;
};

class Writer {
 public:
  Writer(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value, int level) {
    budget_.spend(1);
    if (out.size() > kMaxTextBytes) raise("a string grows over ", kMaxTextBytes, " bytes");
    if (const MarkedText* t = value.text()) {
      write_string(t->bytes);
    } else if (const Sequence* s = value.sequence(); s != nullptr && s->type <= Sequence::Type::tuple) {
      write_items(s->items.size(), level, '[', ']', [&](size_t i) { write(s->items[i], level + 1); });
    } else if (const Dict* d = value.dict()) {
      write_dict(*d, level);
    } else {
      out += scalar(value, concat("Object of type ", type_name(value), " is not JSON serializable"));
    }
  }

  std::string out;

 private:
  static std::string scalar(const Value& value, const std::string& refusal) {
    if (value.is_none()) return "null";
    if (const bool* b = value.boolean()) return *b ? "true" : "false";
    if (const int64_t* i = value.integer()) return std::to_string(*i);
    if (const BigInteger* n = value.big_integer()) return n->digits;
    if (const double* r = value.real()) {
      if (std::isnan(*r)) return "NaN";
      if (std::isinf(*r)) return *r < 0 ? "-Infinity" : "Infinity";
      return float_repr(*r);
    }
    raise(refusal);
  }

  template <class WriteItem>
  void write_items(size_t n, int level, char open, char close, const WriteItem& write_item) {
    out += open;
    for (size_t i = 0; i < n; ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(level + 1);
      write_item(i);
    }
    if (n > 0) new_line(level);
    out += close;
  }

  void new_line(int level) {
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < level; ++i) out += *style_.indent;
    budget_.spend_text(static_cast<size_t>(level) * style_.indent->size());
  }

  void write_dict(const Dict& dict, int level) {
    std::vector<std::pair<std::string, const Value*>> entries;
    for (const auto& [key, value] : dict.entries) {
      entries.emplace_back(key.text() != nullptr
                               ? key.text()->bytes
                               : scalar(key, concat("keys must be str, int, float, bool or None, not ", type_name(key))),
                           &value);
    }
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    write_items(entries.size(), level, '{', '}', [&](size_t i) {
      write_string(entries[i].first);
      out += style_.key_separator;
      write(*entries[i].second, level + 1);
    });
  }

  void append_unit(uint32_t unit) {
    static constexpr char kDigits[] = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[(unit >> shift) & 15];
  }

  void write_string(std::string_view text) {
    budget_.spend_text(kCharacterCost * text.size());
    out += '"';
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = decode_utf8(text, at);
      static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f", kEscape = "\"\\nrtbf";
      const size_t escape = c.value < 0x80 ? kPlain.find(static_cast<char>(c.value)) : std::string_view::npos;
      if (escape != std::string_view::npos) {
        out += '\\';
        out += kEscape[escape];
      } else if (c.value < 0x20 || (style_.ensure_ascii && c.value >= 0x7F && c.value < 0x10000)) {
        append_unit(c.value);
      } else if (style_.ensure_ascii && c.value >= 0x10000) {
        append_unit(0xD800 + ((c.value - 0x10000) >> 10));
        append_unit(0xDC00 + ((c.value - 0x10000) & 0x3FF));
      } else {
        out += text.substr(at, c.length);
      }
      at += c.length;
    }
    out += '"';
  }

  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

Value read_json(std::string_view text, bool trusted, Budget& budget) {
  Builder builder(trusted, budget);
  if (!nlohmann::json::sax_parse(text, &builder)) raise("malformed JSON");
  return std::move(builder.result);
}

std::string write_json(const Value& value, const JsonStyle& style, Budget& budget) {
  Writer writer(style, budget);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace lockstep::jinja
