// The functions a template finds without being given them.
#include "base/error.h"
#include "text/jinja_call.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_ops.h"
#include "text/jinja_strftime.h"
#include "text/jinja_text_ops.h"

#include <algorithm>

namespace lockstep::jinja {

namespace {

using Args = Arguments;
using I = Interpreter;

Value range_function(I& i, const Value&, Args& args) {
  const auto [a, b, c] = bind(args, "range", {"start", "stop", "step"}, 1);
  const int64_t start = b == nullptr ? 0 : integer_argument(*a, "range");
  const int64_t stop = integer_argument(b == nullptr ? *a : *b, "range");
  const int64_t step = c == nullptr ? 1 : integer_argument(*c, "range");
  if (step == 0) raise("range() arg 3 must not be zero");
  int64_t span = 0;
  if (__builtin_sub_overflow(stop, start, &span) || span == INT64_MIN || step == INT64_MIN) raise("Range too big.");
  if ((span > 0) != (step > 0)) span = 0;
  const int64_t n = span == 0 ? 0 : (std::abs(span) - 1) / std::abs(step) + 1;
  if (n > kMaxRange) raise("Range too big. At most ", kMaxRange, " elements are allowed.");
  i.budget.spend(static_cast<size_t>(n));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) items.emplace_back(start + k * step);
  return make_sequence(std::move(items), i.budget, Sequence::Type::range);
}

void merge_arguments(Args& args, std::string_view function, Dict& out, Budget& budget) {
  if (args.positional.size() > 1) raise(function, " expected at most 1 argument, got ", args.positional.size());
  if (!args.positional.empty()) {
    if (const Dict* d = args.positional[0].dict()) {
      for (const auto& [key, value] : d->entries) out.set(key, value, budget);
    } else {
      for (const Value& pair : iterate(args.positional[0], budget)) {
        std::vector<Value> parts = iterate(pair, budget);
        if (parts.size() != 2) raise("a dict is made of pairs");
        out.set(std::move(parts[0]), std::move(parts[1]), budget);
      }
    }
  }
  for (auto& [name, value] : args.named) out.set(make_text(name, true), std::move(value), budget);
}

Value dict_function(I& i, const Value&, Args& args) {
  Dict out;
  merge_arguments(args, "dict", out, i.budget);
  return Value(std::make_shared<const Dict>(std::move(out)));
}

Value namespace_function(I& i, const Value&, Args& args) {
  Dict out;
  merge_arguments(args, "namespace", out, i.budget);
  Object* space = i.make_object(Object::Type::space);
  for (auto& [key, value] : out.entries) set_space_item(*space, text_argument(key, "namespace").bytes, value, i.budget);
  return Value(space);
}

Value raise_function(I& i, const Value&, Args& args) {
  const auto [message] = bind(args, "raise_exception", {"message"}, 1);
  throw RenderError{i.to_text(*message).bytes, true};
}

Value strftime_function(I& i, const Value&, Args& args) {
  const auto [format] = bind(args, "strftime_now", {"format"}, 1);
  const MarkedText& text = text_argument(*format, "strftime_now");
  i.budget.spend_text(2 * kPieceCost * text.bytes.size());
  return i.text(MarkedText(format_time(text.bytes, i.clock()), text.all_trusted()));
}

Value joiner_function(I& i, const Value&, Args& args) {
  const auto [separator] = bind(args, "joiner", {"sep"});
  Object* joiner = i.make_object(Object::Type::joiner);
  joiner->items.push_back(separator == nullptr ? make_text(", ", true) : *separator);
  return Value(joiner);
}

Value cycler_function(I& i, const Value&, Args& args) {
  if (args.positional.empty()) raise("at least one item has to be provided");
  Object* cycler = i.make_object(Object::Type::cycler);
  cycler->items = std::move(args.positional);
  return Value(cycler);
}

Value lipsum_function(I&, const Value&, Args&) { raise("lipsum is not supported: it is random"); }

constexpr NamedFunction kFunctions[] = {
    {"range", range_function},           {"dict", dict_function},
    {"namespace", namespace_function},   {"raise_exception", raise_function},
    {"strftime_now", strftime_function}, {"joiner", joiner_function},
    {"cycler", cycler_function},         {"lipsum", lipsum_function},
};

}  // namespace

Function find_global(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const NamedFunction& f) { return f.name == name; });
  return found == std::end(kFunctions) ? nullptr : found->function;
}

}  // namespace lockstep::jinja
