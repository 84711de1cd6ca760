#include "text/jinja_value.h"

#include "base/error.h"
#include "text/jinja_call.h"

#include <algorithm>
#include <cmath>

namespace lockstep::jinja {

void Budget::exhausted() { raise("the template needs too much work (limit of operations or of text reached)"); }

namespace {

int depth_of(const Value& value) {
  if (const Sequence* s = value.sequence()) return s->depth;
  if (const Dict* d = value.dict()) return d->depth;
  if (const Callable* c = value.callable(); c != nullptr && c->self) return depth_of(*c->self);  // a method holds its object
  return 0;
}

int deeper(int depth, const Value& child) {
  depth = std::max(depth, depth_of(child) + 1);
  if (depth > kMaxValueDepth) raise("values are nested deeper than ", kMaxValueDepth);
  return depth;
}

void check_hashable(const Value& key, Budget& budget) {
  budget.spend(1);
  const Sequence* s = key.sequence();
  if (key.dict() != nullptr || (s != nullptr && s->type == Sequence::Type::list)) {
    raise("unhashable type: '", type_name(key), "'");
  }
  if (s != nullptr && s->type == Sequence::Type::tuple) {
    for (const Value& item : s->items) check_hashable(item, budget);
  }
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  const auto it = text_keys_.find(key);
  return it == text_keys_.end() ? nullptr : &entries[it->second].second;
}

// Keys compare as Python's: numbers by value, tuples by elements.
std::optional<uint32_t> Dict::index_of(const Value& key, Budget& budget) const {
  if (const MarkedText* t = key.text()) {
    budget.spend_text(t->bytes.size());
    const auto it = text_keys_.find(t->bytes);
    return it == text_keys_.end() ? std::nullopt : std::optional(it->second);
  }
  check_hashable(key, budget);
  for (const uint32_t i : other_keys_) {
    if (equal(entries[i].first, key, budget)) return i;
  }
  return std::nullopt;
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  const auto index = index_of(key, budget);
  return index ? &entries[*index].second : nullptr;
}

void Dict::set(Value key, Value value, Budget& budget) {
  budget.spend(1);
  depth = deeper(deeper(depth, value), key);
  if (const auto old = index_of(key, budget)) {
    entries[*old].second = std::move(value);
    return;
  }
  const auto index = static_cast<uint32_t>(entries.size());
  if (const MarkedText* t = key.text()) {
    text_keys_.emplace(t->bytes, index);  // the view lives as long as the entry's text, which never moves
  } else {
    other_keys_.push_back(index);
  }
  entries.emplace_back(std::move(key), std::move(value));
}

Value make_text(std::string_view text, bool trusted) { return Value(MarkedText(text, trusted)); }

Value make_text(MarkedText text, Budget& budget) {
  budget.spend_text(text.bytes.size() + text.runs.size() * sizeof(MarkedText::Run));
  check_length(text);
  return Value(std::move(text));
}

void check_length(const MarkedText& text) {
  if (text.bytes.size() > kMaxTextBytes) raise("a string grows over ", kMaxTextBytes, " bytes");
  if (text.runs.size() > kMaxTextRuns) raise("a string mixes the template and the request more than ", kMaxTextRuns, " times");
}

Value make_undefined(std::string message) {
  Value value;
  value.data = std::make_shared<const Undefined>(Undefined{std::move(message)});
  return value;
}

Value make_sequence(std::vector<Value> items, Budget& budget, Sequence::Type type) {
  budget.spend(items.size() + 1);
  Sequence sequence;
  sequence.type = type;
  for (const Value& item : items) sequence.depth = deeper(sequence.depth, item);
  sequence.items = std::move(items);
  return Value(std::make_shared<const Sequence>(std::move(sequence)));
}

bool is_number(const Value& value) { return is_integral(value) || value.real() != nullptr; }
bool is_integral(const Value& value) { return value.boolean() != nullptr || value.integer() != nullptr; }
int64_t as_integer(const Value& value) { return value.boolean() != nullptr ? int64_t{*value.boolean()} : *value.integer(); }
double as_real(const Value& value) { return value.real() != nullptr ? *value.real() : static_cast<double>(as_integer(value)); }

bool is_true(const Value& value) {
  if (const bool* b = value.boolean()) return *b;
  if (const int64_t* i = value.integer()) return *i != 0;
  if (const double* r = value.real()) return *r != 0;
  if (const MarkedText* t = value.text()) return !t->bytes.empty();
  if (const Sequence* s = value.sequence()) return s->type == Sequence::Type::generator || !s->items.empty();
  if (const Dict* d = value.dict()) return !d->entries.empty();
  return !value.is_none() && !value.is_undefined();
}

std::string type_name(const Value& value) {
  static constexpr const char* kSequences[] = {"list", "tuple", "range", "dict_items", "dict_keys", "dict_values", "generator"};
  static constexpr const char* kObjects[] = {"Namespace", "LoopContext", "Joiner", "Cycler"};
  static constexpr const char* kOthers[] = {"NoneType", "bool", "int", "float", "str", "", "dict", "", "Undefined", "int", ""};
  if (const Sequence* s = value.sequence()) return kSequences[static_cast<size_t>(s->type)];
  if (const Object* o = value.object()) return kObjects[static_cast<size_t>(o->type)];
  if (const Callable* c = value.callable())
    return c->macro != nullptr ? "Macro" : c->self ? "builtin_function_or_method" : "function";
  return kOthers[value.data.index()];
}

std::string object_name(const Value& value) {
  if (value.is_none()) return "None";
  return type_name(value).append(" object");
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.spend(1);
  if (is_number(a) && is_number(b)) {
    if (is_integral(a) && is_integral(b)) return as_integer(a) == as_integer(b);
    return as_real(a) == as_real(b);
  }
  if (a.data.index() != b.data.index()) return false;
  if (const MarkedText* t = a.text()) {
    if (t->bytes.size() != b.text()->bytes.size()) return false;
    budget.spend_text(t->bytes.size());
    return t->bytes == b.text()->bytes;
  }
  if (const Sequence* s = a.sequence()) {
    const Sequence* o = b.sequence();
    if (s == o) return true;
    if (s->type != o->type || s->type >= Sequence::Type::items || s->items.size() != o->items.size()) return false;
    return std::equal(s->items.begin(), s->items.end(), o->items.begin(),
                      [&](const Value& x, const Value& y) { return equal(x, y, budget); });
  }
  if (const Dict* d = a.dict()) {
    const Dict* o = b.dict();
    if (d->entries.size() != o->entries.size()) return false;
    return std::all_of(d->entries.begin(), d->entries.end(), [&](const auto& entry) {
      const Value* other = o->find(entry.first, budget);
      return other != nullptr && equal(entry.second, *other, budget);
    });
  }
  if (const BigInteger* n = a.big_integer()) return n->digits == b.big_integer()->digits;
  if (a.is_none() || a.is_undefined()) return true;
  return a.data == b.data;
}

bool holds_untrusted(const Value& value, Budget& budget) {
  budget.spend(1);
  const auto untrusted = [&](const Value& item) { return holds_untrusted(item, budget); };
  if (const MarkedText* t = value.text()) return !t->all_trusted();
  if (const Sequence* s = value.sequence()) return std::any_of(s->items.begin(), s->items.end(), untrusted);
  if (const Dict* d = value.dict()) {
    return std::any_of(d->entries.begin(), d->entries.end(),
                       [&](const auto& entry) { return untrusted(entry.first) || untrusted(entry.second); });
  }
  if (const Object* o = value.object()) return !o->attributes.empty();
  return !value.trusted;
}

}  // namespace lockstep::jinja
