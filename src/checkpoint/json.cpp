#include "checkpoint/json.h"

#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/printable.h"

namespace lockstep {

namespace {

using nlohmann::json;

// Builds the tree from the parser's events; a false return ends the parse.
class TreeBuilder {
 public:
  explicit TreeBuilder(size_t max_values) : values_left_(max_values) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(json::number_integer_t value) { return add(value); }
  bool number_unsigned(json::number_unsigned_t value) { return add(value); }
  bool number_float(json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(json::binary_t&) { return refuse("binary value"); }
  bool start_object(size_t) { return open(json::object()); }
  bool start_array(size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    auto [at, added] = open_.back()->get_ref<json::object_t&>().emplace(std::move(name), nullptr);
    if (!added) return refuse("duplicate key " + in_quotes(at->first));
    slot_ = &at->second;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    return refuse("not valid JSON at byte " + std::to_string(position));
  }

  json root;
  std::string fault;

 private:
  bool refuse(std::string why) {
    if (fault.empty()) fault = std::move(why);
    return false;
  }
  bool add(json value) { return place(std::move(value)) != nullptr; }
  bool open(json container) {
    if (open_.size() >= kMaxJsonDepth) return refuse("nested more than " + std::to_string(kMaxJsonDepth) + " deep");
    json* placed = place(std::move(container));
    if (placed) open_.push_back(placed);
    return placed != nullptr;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  json* place(json value) {
    if (values_left_-- == 0) {
      refuse("too many values");
      return nullptr;
    }
    if (open_.empty()) return &(root = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->get_ref<json::array_t&>().emplace_back(std::move(value));
    return &(*slot_ = std::move(value));
  }

  size_t values_left_;
  std::vector<json*> open_;  // containers being filled; a parent does not grow while a child is open
  json* slot_ = nullptr;     // where the value of the last key goes
};

}  // namespace

json parse_json_object(const std::string& text, const std::string& origin, size_t max_values) {
  TreeBuilder tree(max_values);
  if (!json::sax_parse(text, &tree)) fail(ExitCode::unreadable, origin, ": ", tree.fault);
  if (!tree.root.is_object()) fail(ExitCode::unreadable, origin, ": a JSON object is expected");
  return std::move(tree.root);
}

}  // namespace lockstep
