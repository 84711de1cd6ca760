// Filters that look into the elements: map, select and reject, sort, join, sums and extremes.
#include "base/error.h"
#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_ops.h"
#include "text/jinja_text_ops.h"

#include <algorithm>
#include <charconv>

namespace lockstep::jinja {

namespace {

using Args = Arguments;
using I = Interpreter;

// The filter's elements, or the error that Python would raise on reaching its end: generators are lazy, this one is not.
template <class Make>
Value lazily(I& i, const Make& make) {
  Sequence sequence;
  sequence.type = Sequence::Type::generator;
  try {
    make(sequence.items);
  } catch (const RenderError& error) {
    i.budget.spend(1);  // an exhausted budget raises again, here
    sequence.late_error = error;
  }
  Value checked = make_sequence(std::move(sequence.items), i.budget, Sequence::Type::generator);
  if (!sequence.late_error) return checked;
  Sequence copy = *checked.sequence();
  copy.late_error = sequence.late_error;
  return Value(std::make_shared<const Sequence>(std::move(copy)));
}

// "a.b.0" or 0: what `attribute=` names.
Value look_up(I& i, Value item, const Value& attribute) {
  if (attribute.text() == nullptr) return get_item(item, attribute, i.budget);
  const std::string_view path = attribute.text()->bytes;
  for (size_t at = 0; at <= path.size();) {
    const size_t dot = std::min(path.find('.', at), path.size());
    const std::string_view part = path.substr(at, dot - at);
    i.budget.spend(1);
    i.budget.spend_text(part.size());
    int64_t index = 0;
    const auto number = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index =
        !part.empty() && part[0] != '-' && number.ec == std::errc() && number.ptr == part.data() + part.size();
    item = get_item(item, is_index ? Value(index) : make_text(part, true), i.budget);
    at = dot + 1;
  }
  return item;
}

Value map_filter(I& i, const Value& input, Args& args) {
  if (!is_true(input)) return make_sequence({}, i.budget, Sequence::Type::generator);
  if (args.positional.empty()) {
    const auto [attribute, fallback] = bind(args, "map", {"attribute", "default"}, 1);
    return lazily(i, [&](std::vector<Value>& out) {
      for (const Value& item : iterate(input, i.budget)) {
        Value found = look_up(i, item, *attribute);
        const bool use_default = found.is_undefined() && fallback != nullptr && !fallback->is_none();
        out.push_back(use_default ? *fallback : std::move(found));
      }
    });
  }
  const std::string& name = text_argument(args.positional[0], "map").bytes;
  const FilterEntry* filter = find_filter(name);
  if (filter == nullptr) raise("No filter named '", name, "'.");
  return lazily(i, [&](std::vector<Value>& out) {
    for (const Value& item : iterate(input, i.budget)) {
      i.budget.spend(1);
      Args own{{args.positional.begin() + 1, args.positional.end()}, args.named};
      out.push_back(filter->apply(i, item, own));
    }
  });
}

// select, reject: [test, arguments …]; selectattr, rejectattr: attribute first.
template <bool by_attribute, bool wanted>
Value select_filter(I& i, const Value& input, Args& args) {
  const size_t n_before = by_attribute ? 1 : 0;
  if (args.positional.size() < n_before) raise("Missing parameter for attribute name");
  const TestEntry* test = nullptr;
  if (args.positional.size() > n_before) {
    const std::string& name = text_argument(args.positional[n_before], "select").bytes;
    test = find_test(name);
    if (test == nullptr) raise("No test named '", name, "'.");
  }
  if (!is_true(input)) return make_sequence({}, i.budget, Sequence::Type::generator);
  return lazily(i, [&](std::vector<Value>& out) {
    for (Value& item : iterate(input, i.budget)) {
      i.budget.spend(1);
      const Value looked_at = by_attribute ? look_up(i, item, args.positional[0]) : item;
      bool passes = false;
      if (test == nullptr) {
        passes = is_true(looked_at);
      } else {
        Args own{{args.positional.begin() + static_cast<ptrdiff_t>(n_before) + 1, args.positional.end()}, args.named};
        passes = test->apply(i, looked_at, own);
      }
      if (passes == wanted) out.push_back(std::move(item));
    }
  });
}

// What sort, unique, min and max compare: the attribute, letters lower where case doesn't count.
Value sort_key(I& i, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = attribute == nullptr || attribute->is_none() ? item : look_up(i, item, *attribute);
  if (!case_sensitive && key.text() != nullptr) return i.text(lower(*key.text(), i.budget));
  return key;
}

bool given_true(const Value* value) { return value != nullptr && is_true(*value); }

std::vector<Value> sorted(I& i, std::vector<Value> items, std::vector<Value> keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t n = 0; n < order.size(); ++n) order[n] = n;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? less(keys[b], keys[a], i.budget) : less(keys[a], keys[b], i.budget);
  });
  std::vector<Value> out;
  for (const size_t n : order) out.push_back(std::move(items[n]));
  return out;
}

Value sort_filter(I& i, const Value& input, Args& args) {
  const auto [reverse, case_sensitive, attribute] = bind(args, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> items = iterate(input, i.budget), keys;
  std::vector<Value> attributes;  // keys are lists, so that two undefined values are equal
  if (attribute != nullptr && attribute->text() != nullptr) {
    attributes = split(*attribute->text(), ",", -1, i.budget);
  } else {
    attributes.push_back(attribute == nullptr ? Value() : *attribute);
  }
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const Value& part : attributes) key.push_back(sort_key(i, item, &part, given_true(case_sensitive)));
    keys.push_back(make_list(std::move(key), i.budget));
  }
  return make_list(sorted(i, std::move(items), std::move(keys), given_true(reverse)), i.budget);
}

Value dictsort_filter(I& i, const Value& input, Args& args) {
  const auto [case_sensitive, by, reverse] = bind(args, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string which = by == nullptr ? "key" : text_argument(*by, "dictsort").bytes;
  if (which != "key" && which != "value") raise("You can only sort by either \"key\" or \"value\"");
  check_defined(input);
  if (input.dict() == nullptr) raise("'", type_name(input), "' object has no attribute 'items'");
  std::vector<Value> items, keys;
  for (const auto& [key, value] : input.dict()->entries) {
    items.push_back(make_sequence({key, value}, i.budget, Sequence::Type::tuple));
    keys.push_back(sort_key(i, which == "key" ? key : value, nullptr, given_true(case_sensitive)));
  }
  return make_list(sorted(i, std::move(items), std::move(keys), given_true(reverse)), i.budget);
}

Value unique_filter(I& i, const Value& input, Args& args) {
  const auto [case_sensitive, attribute] = bind(args, "unique", {"case_sensitive", "attribute"});
  return lazily(i, [&](std::vector<Value>& out) {
    Dict seen;
    for (const Value& item : iterate(input, i.budget)) {
      Value key = sort_key(i, item, attribute, given_true(case_sensitive));
      if (seen.find(key, i.budget) != nullptr) continue;
      seen.set(std::move(key), Value(), i.budget);
      out.push_back(item);
    }
  });
}

template <bool largest>
Value extreme_filter(I& i, const Value& input, Args& args) {
  const auto [case_sensitive, attribute] = bind(args, largest ? "max" : "min", {"case_sensitive", "attribute"});
  std::vector<Value> items = iterate(input, i.budget);
  if (items.empty()) return make_undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = sort_key(i, items[0], attribute, given_true(case_sensitive));
  for (size_t n = 1; n < items.size(); ++n) {
    Value key = sort_key(i, items[n], attribute, given_true(case_sensitive));
    if (!(largest ? less(best_key, key, i.budget, ">") : less(key, best_key, i.budget))) continue;
    best = n;
    best_key = std::move(key);
  }
  return items[best];
}

Value sum_filter(I& i, const Value& input, Args& args) {
  const auto [attribute, start] = bind(args, "sum", {"attribute", "start"});
  Value total = start == nullptr ? Value(int64_t{0}) : *start;
  for (const Value& item : iterate(input, i.budget)) {
    const bool plain = attribute == nullptr || attribute->is_none();
    total = arithmetic(Operator::add, total, plain ? item : look_up(i, item, *attribute), i.budget);
  }
  return total;
}

Value join_filter(I& i, const Value& input, Args& args) {
  const auto [separator, attribute] = bind(args, "join", {"d", "attribute"});
  const MarkedText between = separator == nullptr ? MarkedText() : i.to_text(*separator);
  MarkedText out;
  bool first = true;
  for (const Value& item : iterate(input, i.budget)) {
    if (!std::exchange(first, false)) out.append(between);
    out.append(i.to_text(attribute == nullptr || attribute->is_none() ? item : look_up(i, item, *attribute)));
    check_length(out);
  }
  return i.text(std::move(out));
}

constexpr FilterEntry kFilters[] = {
    {"map", map_filter},
    {"select", select_filter<false, true>},
    {"reject", select_filter<false, false>},
    {"selectattr", select_filter<true, true>},
    {"rejectattr", select_filter<true, false>},
    {"sort", sort_filter},
    {"dictsort", dictsort_filter},
    {"unique", unique_filter},
    {"min", extreme_filter<false>},
    {"max", extreme_filter<true>},
    {"sum", sum_filter},
    {"join", join_filter},
};

}  // namespace

std::span<const FilterEntry> select_filters() { return kFilters; }

}  // namespace lockstep::jinja
