// Filters of lists and dicts that don't look into their elements, and the lookup of all filters.
#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_ops.h"
#include "text/jinja_text_ops.h"

#include <algorithm>

namespace lockstep::jinja {

namespace {

using Args = Arguments;
using I = Interpreter;

Value generator(I& i, std::vector<Value> items) { return make_sequence(std::move(items), i.budget, Sequence::Type::generator); }

Value length_filter(I& i, const Value& input, Args&) {
  if (const MarkedText* t = input.text()) i.budget.spend_text(t->bytes.size());
  return Value(length(input));
}

Value list_filter(I& i, const Value& input, Args&) { return make_list(iterate(input, i.budget), i.budget); }

Value first_filter(I& i, const Value& input, Args&) {
  if (const Sequence* s = input.sequence();
      s != nullptr && s->type == Sequence::Type::generator && s->n_consumed < s->items.size()) {
    return s->items[s->n_consumed++];
  }
  if (const MarkedText* t = input.text(); t != nullptr && !t->bytes.empty())
    return Value(t->slice(0, byte_offset(t->bytes, 1)));
  std::vector<Value> items = iterate(input, i.budget);
  return items.empty() ? make_undefined("No first item, sequence was empty.") : std::move(items.front());
}

void check_reversible(const Value& input) {
  const Sequence* s = input.sequence();
  if (s != nullptr && s->type == Sequence::Type::generator) raise("'generator' object is not reversible");
  if (s == nullptr && input.text() == nullptr && input.dict() == nullptr && !input.is_undefined()) {
    raise("'", type_name(input), "' object is not reversible");
  }
}

Value last_filter(I& i, const Value& input, Args&) {
  check_reversible(input);
  std::vector<Value> items = iterate(input, i.budget);
  return items.empty() ? make_undefined("No last item, sequence was empty.") : std::move(items.back());
}

Value reverse_filter(I& i, const Value& input, Args&) {
  std::vector<Value> items = iterate(input, i.budget);
  std::reverse(items.begin(), items.end());
  if (input.text() == nullptr) return generator(i, std::move(items));
  MarkedText out;
  for (const Value& item : items) out.append(*item.text());
  return i.text(std::move(out));
}

Value items_filter(I& i, const Value& input, Args&) {
  if (input.is_undefined()) return generator(i, {});
  if (input.dict() == nullptr) {
    Sequence nothing;
    nothing.type = Sequence::Type::generator;
    nothing.late_error = RenderError{"Can only get item pairs from a mapping."};
    return Value(std::make_shared<const Sequence>(std::move(nothing)));
  }
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.dict()->entries) {
    pairs.push_back(make_sequence({key, value}, i.budget, Sequence::Type::tuple));
  }
  return generator(i, std::move(pairs));
}

template <bool by_columns>
Value batch_filter(I& i, const Value& input, Args& args) {
  const auto [size, fill] = bind(args, by_columns ? "slice" : "batch", {"linecount", "fill_with"}, 1);
  const int64_t n = integer_argument(*size, "batch");
  if (n < 1 || n > 100'000) raise("batch() wants a positive number of at most 100000");
  const std::vector<Value> items = iterate(input, i.budget);
  const size_t n_groups =
      by_columns ? static_cast<size_t>(n) : (items.size() + static_cast<size_t>(n) - 1) / static_cast<size_t>(n);
  std::vector<Value> groups;
  size_t at = 0;
  const bool has_fill = fill != nullptr && !fill->is_none();
  for (size_t g = 0; g < n_groups; ++g) {
    const bool is_long = g < items.size() % static_cast<size_t>(n);
    const size_t wanted = by_columns ? items.size() / static_cast<size_t>(n) + (is_long ? 1 : 0) : static_cast<size_t>(n);
    std::vector<Value> group;
    while (group.size() < wanted && at < items.size()) group.push_back(items[at++]);
    if (has_fill && by_columns && !is_long && items.size() % static_cast<size_t>(n) != 0) group.push_back(*fill);
    while (has_fill && !by_columns && group.size() < wanted) {
      i.budget.spend(1);
      group.push_back(*fill);
    }
    groups.push_back(make_list(std::move(group), i.budget));
  }
  return generator(i, std::move(groups));
}

constexpr FilterEntry kFilters[] = {
    {"length", length_filter}, {"count", length_filter},       {"list", list_filter},
    {"first", first_filter},   {"last", last_filter},          {"reverse", reverse_filter},
    {"items", items_filter},   {"batch", batch_filter<false>}, {"slice", batch_filter<true>},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kFilters; }

const FilterEntry* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), sequence_filters(), select_filters()}) {
    for (const FilterEntry& entry : table) {
      if (entry.name == name) return &entry;
    }
  }
  return nullptr;
}

}  // namespace lockstep::jinja
