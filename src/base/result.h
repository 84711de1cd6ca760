// Faults of the input are values: a Fault ends in that line's record as error{code, message}, and the run goes on.
//   Result<PromptRecord> r = parse(line); if (!r.ok()) record_error(r.fault());
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace lockstep {

struct Fault {
  std::string code;     // stable, for programs: "invalid_json", "unknown_parameter", "prompt_too_long", ...
  std::string message;  // for people: names field and value; merge puts the line number in front
};

template <class T>
class Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit by design
  Result(Fault fault) : state_(std::move(fault)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  const Fault& fault() const { return std::get<1>(state_); }

 private:
  std::variant<T, Fault> state_;
};

}  // namespace lockstep
