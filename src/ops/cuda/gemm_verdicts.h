// Which of cuBLASLt's guesses was best for a size of product, kept between runs in a file for each GPU, library and driver:
// lines "n_out k type m number". They are advice: a guess is compared like any other before it is used, so that nothing in the
// file can change a byte of a result.
//   LOCKSTEP_CACHE=DIR (default $XDG_CACHE_HOME/lockstep, or ~/.cache/lockstep); set to nothing: no file.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tensor/tensor.h"

namespace lockstep {

struct ProductSize {
  int64_t n_out = 0, k = 0;
  DType out = DType::f32;
  int64_t m = 0;  // rows, rounded up
  auto operator<=>(const ProductSize&) const = default;
};
using Verdicts = std::map<ProductSize, int>;  // the guess's number, from 0

std::optional<Verdicts> verdicts_of(const std::string& text);  // nullopt: some line isn't one
std::string text_of(const Verdicts& verdicts);

std::string verdicts_path(const std::string& machine);  // "" where there is no place; machine: any text that tells them apart
Verdicts read_verdicts(const std::string& path);        // empty where there is no such file, or something else in it
void write_verdicts(const std::string& path, const Verdicts& verdicts);  // replaces the file; nothing where it can't

}  // namespace lockstep
