#include "ops/cuda/gemm_verdicts.h"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>

#include "base/durable_file.h"
#include "base/log.h"

namespace lockstep {

namespace {

constexpr int64_t kMostNumber = 1000;

std::optional<int64_t> number_of(const std::string& word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 0 || value > INT32_MAX) return std::nullopt;
  return value;
}

std::optional<std::pair<ProductSize, int>> verdict_of(const std::string& line) {
  std::istringstream in(line);
  std::string n_out, k, type, m, number, rest;
  if (!(in >> n_out >> k >> type >> m >> number) || in >> rest) return std::nullopt;
  const auto n = number_of(n_out), depth = number_of(k), rows = number_of(m), guess = number_of(number);
  if (!n || !depth || !rows || !guess || *guess > kMostNumber || (type != "bf16" && type != "f32")) return std::nullopt;
  return std::pair{ProductSize{*n, *depth, type == "f32" ? DType::f32 : DType::bf16, *rows}, static_cast<int>(*guess)};
}

}  // namespace

std::optional<Verdicts> verdicts_of(const std::string& text) {
  Verdicts verdicts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto verdict = verdict_of(line);
    if (!verdict) return std::nullopt;
    verdicts.insert(*verdict);
  }
  return verdicts;
}

std::string text_of(const Verdicts& verdicts) {
  std::ostringstream text;
  for (const auto& [size, number] : verdicts)
    text << size.n_out << ' ' << size.k << ' ' << name_of(size.out) << ' ' << size.m << ' ' << number << '\n';
  return text.str();
}

std::string verdicts_path(const std::string& machine) {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::filesystem::path(text == nullptr ? "" : text);
  };
  std::filesystem::path folder = value("LOCKSTEP_CACHE");
  if (std::getenv("LOCKSTEP_CACHE") == nullptr) {
    if (const auto cache = value("XDG_CACHE_HOME"); !cache.empty())
      folder = cache / "lockstep";
    else if (const auto home = value("HOME"); !home.empty())
      folder = home / ".cache" / "lockstep";
  }
  if (folder.empty()) return "";
  std::string name = "products-" + machine;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.') c = '-';
  return folder / name;
}

Verdicts read_verdicts(const std::string& path) {
  if (path.empty()) return {};
  try {
    const auto verdicts = verdicts_of(read_small_file(path, size_t{1} << 20).value_or(""));
    if (!verdicts) log_debug(path, ": not a file of verdicts, taken as empty");
    return verdicts.value_or(Verdicts{});
  } catch (const std::exception& e) {
    log_debug("verdicts of products: ", e.what());
    return {};
  }
}

// Ranks and jobs may write at the same time: each whole, the last one stays.
void write_verdicts(const std::string& path, const Verdicts& verdicts) {
  if (path.empty()) return;
  const std::string mine = concat(path, ".new-", random_token());
  try {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    atomic_write(mine, text_of(verdicts));
    std::filesystem::rename(mine, path);
  } catch (const std::exception& e) {  // a home that is read-only, or full: the next run tries again
    std::error_code ignored;
    std::filesystem::remove(mine, ignored);
    log_debug("verdicts of products: ", e.what());
  }
}

}  // namespace lockstep
