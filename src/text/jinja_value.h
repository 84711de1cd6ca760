// Values of the template language, with Python's meaning. Sequences and dicts never change once made (Transformers' sandbox
// refuses to change them, too); what changes (namespaces, loops) is an Object that the interpreter owns. Not JSON itself
// (jinja_json.h) and no operators (jinja_ops.h).
//   Value v = make_list({make_text("a", true), Value(int64_t{1})}, budget); to_text(v, budget).bytes == "['a', 1]"
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "text/marked_text.h"

namespace lockstep::jinja {

// Ends a rendering. It never leaves ChatTemplate::render, which makes a Fault of it.
struct RenderError {
  std::string message;
  bool by_template = false;  // raise_exception: the message is the template's own
};
template <class... Parts>
[[noreturn]] void raise(const Parts&... parts) {
  throw RenderError{concat(parts...)};
}

// What a rendering may use. Fuel is one unit a node evaluated and an element made; text bytes count what string operations
// read and write, marks included, and more where they are slow. Both run out well within a second.
struct Budget {
  int64_t fuel = 1'000'000;
  int64_t text_bytes = int64_t{256} << 20;

  void spend(size_t units) {
    fuel -= static_cast<int64_t>(units);
    if (fuel < 0) exhausted();
  }
  void spend_text(size_t bytes) {
    text_bytes -= static_cast<int64_t>(bytes);
    if (text_bytes < 0) exhausted();
  }
  [[noreturn]] static void exhausted();
};

inline constexpr size_t kMaxTextBytes = size_t{16} << 20;  // of one string, and of the prompt
inline constexpr size_t kMaxTextRuns = size_t{1} << 20;    // stretches of equal trust in one string
inline constexpr size_t kCharacterCost = 8;                // text bytes: a character decoded and looked at
inline constexpr size_t kMirrorCost = 4;                   // a byte searched from the right
inline constexpr size_t kPieceCost = 64;                   // a piece of text found or written
inline constexpr int kMaxValueDepth = 100;                 // lists in lists; so plain recursion over a value is safe

struct Sequence;
struct Dict;
struct Callable;
struct Object;

struct None {
  bool operator==(const None&) const = default;
};
struct Undefined {
  std::string message;  // raised when the value is used
};
struct BigInteger {
  std::string digits;  // of an integer of the request beyond 64 bits: printed as it came, no arithmetic
};

struct Value {
  std::variant<None, bool, int64_t, double, std::shared_ptr<const MarkedText>, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Dict>, std::shared_ptr<const Callable>, std::shared_ptr<const Undefined>,
               std::shared_ptr<const BigInteger>, Object*>
      data;
  bool trusted = true;  // of a bool or number: what it prints came from the template

  Value() = default;
  explicit Value(bool value, bool trusted = true) : data(value), trusted(trusted) {}
  explicit Value(int64_t value, bool trusted = true) : data(value), trusted(trusted) {}
  explicit Value(double value, bool trusted = true) : data(value), trusted(trusted) {}
  explicit Value(MarkedText text) : data(std::make_shared<const MarkedText>(std::move(text))) {}
  explicit Value(std::shared_ptr<const Sequence> sequence) : data(std::move(sequence)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data(std::move(dict)) {}
  explicit Value(std::shared_ptr<const Callable> callable) : data(std::move(callable)) {}
  explicit Value(Object* object) : data(object) {}

  bool is_none() const { return std::holds_alternative<None>(data); }
  bool is_undefined() const { return std::holds_alternative<std::shared_ptr<const Undefined>>(data); }
  const bool* boolean() const { return std::get_if<bool>(&data); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data); }
  const double* real() const { return std::get_if<double>(&data); }
  const MarkedText* text() const { return pointer<MarkedText>(); }
  const Sequence* sequence() const { return pointer<Sequence>(); }
  const Dict* dict() const { return pointer<Dict>(); }
  const Callable* callable() const { return pointer<Callable>(); }
  const Undefined* undefined() const { return pointer<Undefined>(); }
  const BigInteger* big_integer() const { return pointer<BigInteger>(); }
  Object* object() const {
    const auto* p = std::get_if<Object*>(&data);
    return p == nullptr ? nullptr : *p;
  }

 private:
  template <class T>
  const T* pointer() const {
    const auto* p = std::get_if<std::shared_ptr<const T>>(&data);
    return p == nullptr ? nullptr : p->get();
  }
};

struct Sequence {
  enum class Type : uint8_t { list, tuple, range, items, keys, values, generator };
  Type type = Type::list;
  std::vector<Value> items;
  int depth = 1;
  mutable size_t n_consumed = 0;          // generators: each element is seen once
  std::optional<RenderError> late_error;  // generators: raised where the elements end

  bool indexable() const { return type == Type::list || type == Type::tuple || type == Type::range; }
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in order of first insertion
  int depth = 1;

  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(std::string_view key) const;     // a short key: nothing is spent
  void set(Value key, Value value, Budget& budget);  // only while it is being made

 private:
  std::optional<uint32_t> index_of(const Value& key, Budget& budget) const;
  std::map<std::string_view, uint32_t> text_keys_;  // text key → entry (a map: no key set makes it slow)
  std::vector<uint32_t> other_keys_;                // entries whose key is no text
};

struct Object {
  enum class Type : uint8_t { space, loop, joiner, cycler };
  Type type = Type::space;
  std::vector<std::pair<std::string, Value>> attributes;  // namespace
  void* state = nullptr;                                  // loop: its LoopState while it runs
  std::vector<Value> items;                               // cycler; joiner: the separator
  size_t position = 0;                                    // cycler; joiner: uses so far
};

Value make_text(std::string_view text, bool trusted);
Value make_undefined(std::string message);
template <class... Parts>
Value make_undefined(std::string_view first, const Parts&... parts) {  // often made, seldom read: no stream
  std::string message(first);
  (message.append(parts), ...);
  return make_undefined(std::move(message));
}
Value make_sequence(std::vector<Value> items, Budget& budget, Sequence::Type type = Sequence::Type::list);
inline Value make_list(std::vector<Value> items, Budget& budget) { return make_sequence(std::move(items), budget); }
// Spends what a string of this size costs, and refuses one that is too long.
Value make_text(MarkedText text, Budget& budget);
// Refuses what is too long already, while it is being built.
void check_length(const MarkedText& text);

bool is_number(const Value& value);      // bool, int or float
bool is_integral(const Value& value);    // bool or int
int64_t as_integer(const Value& value);  // of an integral
double as_real(const Value& value);      // of a number
bool is_true(const Value& value);
std::string type_name(const Value& value);    // Python's: "str", "NoneType", "dict_items"
std::string object_name(const Value& value);  // as undefined values name it: "str object", "None"

// ==, Python's: 1 == 1.0 == True, a list is no tuple.
bool equal(const Value& a, const Value& b, Budget& budget);

// str(value) and repr(value). The text of a value that holds anything of the request is untrusted as a whole, unless the value
// is a string.
MarkedText to_text(const Value& value, Budget& budget);
std::string repr(const Value& value, Budget& budget);
bool holds_untrusted(const Value& value, Budget& budget);
std::string float_repr(double value);

}  // namespace lockstep::jinja
