// value.name, value[key], value[a:b:c].
#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja_call.h"
#include "text/jinja_ops.h"

#include <algorithm>

namespace lockstep::jinja {

namespace {

Value missing(const Value& value, const std::string& name) {
  return make_undefined("'", object_name(value), "' has no attribute '", name, "'");
}

Value missing_element(const Value& value, const Value& key, Budget& budget) {
  return make_undefined("'", object_name(value), "' has no element ", repr(key, budget));
}

// A method, or an undefined value that says why not; nullopt where Python's object has no such attribute.
std::optional<Value> find_method(const Value& value, const std::string& name) {
  const bool is_list = value.sequence() != nullptr && value.sequence()->indexable();
  const Function method = value.text() != nullptr   ? find_text_method(name)
                          : value.dict() != nullptr ? find_dict_method(name)
                          : is_list                 ? find_list_method(name)
                                                    : nullptr;
  if (method != nullptr) return Value(std::make_shared<const Callable>(Callable{name, method, value, nullptr, {}}));
  if (is_refused_method(value, name) || (name.starts_with("__") && name.ends_with("__"))) {
    return make_undefined("access to attribute '", name, "' of '", type_name(value), "' object is unsafe.");
  }
  if (is_unsupported_attribute(value, name)) raise(".", name, " of a ", type_name(value), " is not supported");
  return std::nullopt;
}

struct Range {
  int64_t start, stop, step;
  size_t count;
};

int64_t slice_index(const Value& value) {
  if (!is_integral(value)) raise("slice indices must be integers or None or have an __index__ method");
  return as_integer(value);
}

// Python's rules for x[start:stop:step] on n elements.
Range resolve_slice(const Value* start, const Value* stop, const Value* step, int64_t n) {
  Range r{};
  r.step = step == nullptr ? 1 : slice_index(*step);
  if (r.step == 0) raise("slice step cannot be zero");
  r.step = std::clamp<int64_t>(r.step, -(n + 1), n + 1);
  const int64_t lowest = r.step < 0 ? -1 : 0, highest = r.step < 0 ? n - 1 : n;
  const auto bound = [&](const Value* v, int64_t fallback) {
    if (v == nullptr) return fallback;
    const int64_t i = slice_index(*v);
    return i < 0 ? std::max(i < -n ? lowest : i + n, lowest) : std::min(i, highest);
  };
  r.start = bound(start, r.step < 0 ? highest : lowest);
  r.stop = bound(stop, r.step < 0 ? lowest : highest);
  const int64_t span = r.step > 0 ? r.stop - r.start : r.start - r.stop;
  r.count = span > 0 ? static_cast<size_t>((span - 1) / std::abs(r.step) + 1) : 0;
  return r;
}

Value text_slice(const MarkedText& text, const Value* start, const Value* stop, const Value* step, Budget& budget) {
  budget.spend_text(text.bytes.size());
  const std::string_view bytes = text.bytes;
  const Range r = resolve_slice(start, stop, step, static_cast<int64_t>(count_code_points(bytes)));
  if (r.count == 0) return make_text("", true);
  if (r.step == 1) {
    const size_t from = byte_offset(bytes, static_cast<size_t>(r.start));
    return make_text(text.slice(from, from + byte_offset(bytes.substr(from), r.count)), budget);
  }
  std::vector<size_t> starts;
  for (size_t at = 0; at < bytes.size(); at += decode_utf8(bytes, at).length) starts.push_back(at);
  starts.push_back(bytes.size());
  budget.spend_text(starts.size() * sizeof(size_t) + r.count * kCharacterCost);
  MarkedText picked;
  for (size_t i = 0; i < r.count; ++i) {
    const auto at = static_cast<size_t>(r.start + static_cast<int64_t>(i) * r.step);
    picked.append(text, starts[at], starts[at + 1]);
  }
  return make_text(std::move(picked), budget);
}

std::optional<Value> text_element(const MarkedText& text, int64_t index, Budget& budget) {
  const std::string_view bytes = text.bytes;
  size_t at = 0;
  if (index >= 0) {
    at = byte_offset(bytes, static_cast<size_t>(index));
    budget.spend_text(at);
    if (at >= bytes.size()) return std::nullopt;
  } else {
    at = bytes.size();
    for (int64_t i = index; i < 0; ++i) {
      if (at == 0) return std::nullopt;
      at = previous_code_point(bytes, at);
    }
    budget.spend_text(bytes.size() - at);
  }
  return Value(text.slice(at, at + decode_utf8(bytes, at).length));
}

}  // namespace

Value get_attribute(const Value& value, const std::string& name, Budget& budget) {
  budget.spend(1);
  check_defined(value);
  if (const Object* object = value.object()) {
    budget.spend(object->attributes.size() / 32);
    budget.spend_text(name.size());
    for (const auto& [key, item] : object->attributes) {
      if (key == name) return item;
    }
    return missing(value, name);
  }
  if (auto method = find_method(value, name)) return *method;
  if (const Dict* d = value.dict()) {
    if (const Value* item = d->find(name)) return *item;
  }
  return missing(value, name);
}

Value get_item(const Value& value, const Value& key, Budget& budget) {
  check_defined(value);
  if (const Dict* d = value.dict()) {
    const Sequence* s = key.sequence();
    const bool hashable = key.dict() == nullptr && (s == nullptr || s->type != Sequence::Type::list);
    if (const Value* item = hashable ? d->find(key, budget) : nullptr) return *item;
  }
  if (is_integral(key)) {
    int64_t index = as_integer(key);
    if (const MarkedText* t = value.text()) {
      if (auto element = text_element(*t, index, budget)) return *element;
    } else if (const Sequence* s = value.sequence(); s != nullptr && s->indexable()) {
      const auto n = static_cast<int64_t>(s->items.size());
      if (index < 0 && index >= -n) index += n;
      if (index >= 0 && index < n) return s->items[static_cast<size_t>(index)];
    }
  }
  if (const MarkedText* name = key.text()) {
    budget.spend_text(name->bytes.size());  // of the undefined value's message
    if (auto method = find_method(value, name->bytes)) return *method;
    return missing(value, name->bytes);
  }
  return missing_element(value, key, budget);
}

Value get_slice(const Value& value, const Value* start, const Value* stop, const Value* step, Budget& budget) {
  check_defined(value);
  if (const MarkedText* t = value.text()) return text_slice(*t, start, stop, step, budget);
  if (value.dict() != nullptr) raise("unhashable type: 'slice'");
  const Sequence* s = value.sequence();
  if (s == nullptr || !s->indexable()) raise("'", type_name(value), "' object is not subscriptable");
  const Range r = resolve_slice(start, stop, step, static_cast<int64_t>(s->items.size()));
  std::vector<Value> items;
  budget.spend(r.count);
  for (size_t i = 0; i < r.count; ++i) {
    items.push_back(s->items[static_cast<size_t>(r.start + static_cast<int64_t>(i) * r.step)]);
  }
  return make_sequence(std::move(items), budget, s->type);
}

void set_space_item(Object& space, const std::string& name, Value value, Budget& budget) {
  if (name.starts_with("_")) raise("an attribute of a namespace can't start with an underscore: '", name, "'");
  budget.spend(space.attributes.size() / 32);
  for (auto& [key, item] : space.attributes) {
    if (key == name) {
      item = std::move(value);
      return;
    }
  }
  space.attributes.emplace_back(name, std::move(value));
}

}  // namespace lockstep::jinja
