#include "checkpoint/safetensors.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "checkpoint/printable.h"

namespace lockstep {

namespace {

using nlohmann::json;

constexpr size_t kMaxName = 1024, kMaxRank = 16;

struct DtypeRow {
  std::string_view name;
  uint32_t bits;
};
constexpr DtypeRow kDtypes[] = {
    {"F32", 32},    {"F16", 16},    {"BF16", 16}, {"F64", 64}, {"BOOL", 8},    {"U8", 8},      {"I8", 8},
    {"I16", 16},    {"U16", 16},    {"I32", 32},  {"U32", 32}, {"I64", 64},    {"U64", 64},    {"F8_E5M2", 8},
    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"C64", 64},  {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

std::optional<uint8_t> find_dtype(std::string_view name) {
  for (size_t i = 0; i < std::size(kDtypes); ++i) {
    if (kDtypes[i].name == name) return static_cast<uint8_t>(i);
  }
  return std::nullopt;
}

// What both readers of events share: anything that is not expected ends the parse with a reason.
struct Events {
  std::string fault;

  bool refuse(std::string why) {
    if (fault.empty()) fault = std::move(why);
    return false;
  }
  bool null() { return refuse("unexpected null"); }
  bool boolean(bool) { return refuse("unexpected boolean"); }
  bool number_integer(json::number_integer_t) { return refuse("unexpected negative number"); }
  bool number_unsigned(json::number_unsigned_t) { return refuse("unexpected number"); }
  bool number_float(json::number_float_t, const std::string&) { return refuse("number that is not an integer"); }
  bool binary(json::binary_t&) { return refuse("binary value"); }
  bool start_array(size_t) { return refuse("unexpected array"); }
  bool end_array() { return true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    return refuse("not valid JSON at byte " + std::to_string(position));
  }
};

// {"__metadata__": {string: string}, NAME: {"dtype": string, "shape": [n...], "data_offsets": [begin, end]}, ...}
class HeaderEvents : public Events {
 public:
  std::vector<SafetensorsEntry> entries;

  bool start_object(size_t) {
    if (++depth_ > 2 || in_array_) return refuse("unexpected object");
    if (depth_ == 2) seen_ = 0;
    return true;
  }
  bool end_object() {
    if (depth_-- == 2 && !metadata_ && seen_ != 7)
      return refuse(concat("tensor ", in_quotes(entry_.name), " lacks dtype, shape or data_offsets"));
    if (depth_ == 1 && !metadata_) {
      if (entries.size() >= kMaxTensorsPerFile) return refuse("too many tensors");
      entries.push_back(std::move(entry_));
    }
    return true;
  }
  bool key(std::string& name) {
    if (depth_ == 1) {
      if (name.size() > kMaxName) return refuse("a tensor name is too long");
      metadata_ = name == "__metadata__";
      if (metadata_ && std::exchange(metadata_seen_, true)) return refuse("duplicate key '__metadata__'");
      entry_ = {};
      entry_.name = std::move(name);
      return true;
    }
    if (metadata_) return true;
    const unsigned field = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
    if (field == 0) return refuse(concat("tensor ", in_quotes(entry_.name), ": unknown field ", in_quotes(name)));
    if (seen_ & field) return refuse(concat("tensor ", in_quotes(entry_.name), ": ", name, " twice"));
    seen_ |= field_ = field;
    return true;
  }
  bool string(std::string& value) {
    if (depth_ == 2 && metadata_) return true;
    if (depth_ != 2 || field_ != 1 || in_array_) return refuse("unexpected string");
    const auto dtype = find_dtype(value);
    if (!dtype) return refuse(concat("tensor ", in_quotes(entry_.name), " has the unknown dtype ", in_quotes(value)));
    entry_.dtype = *dtype;
    return true;
  }
  bool start_array(size_t) {
    if (depth_ != 2 || metadata_ || field_ == 1 || in_array_) return refuse("unexpected array");
    in_array_ = true;
    n_offsets_ = 0;
    return true;
  }
  bool end_array() {
    in_array_ = false;
    if (field_ == 4 && n_offsets_ != 2)
      return refuse(concat("tensor ", in_quotes(entry_.name), ": data_offsets are two numbers"));
    return true;
  }
  bool number_unsigned(json::number_unsigned_t value) {
    if (!in_array_) return refuse("unexpected number");
    if (field_ == 4) {
      if (n_offsets_ == 2) return refuse(concat("tensor ", in_quotes(entry_.name), ": data_offsets are two numbers"));
      (n_offsets_++ == 0 ? entry_.begin : entry_.end) = value;
      return true;
    }
    if (entry_.shape.size() == kMaxRank) return refuse(concat("tensor ", in_quotes(entry_.name), " has too many dimensions"));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return refuse(concat("tensor ", in_quotes(entry_.name), ": dimension ", value));
    }
    entry_.shape.push_back(static_cast<int64_t>(value));
    return true;
  }
  // A literal such as -0 arrives as a signed integer.
  bool number_integer(json::number_integer_t) { return refuse(concat("tensor ", in_quotes(entry_.name), ": negative number")); }

 private:
  SafetensorsEntry entry_;
  int depth_ = 0;
  bool metadata_ = false, metadata_seen_ = false, in_array_ = false;
  unsigned field_ = 0, seen_ = 0;  // bits: dtype 1, shape 2, data_offsets 4
  int n_offsets_ = 0;
};

// Bytes of the tensor, or nothing where they overflow or are not whole.
std::optional<uint64_t> tensor_bytes(const SafetensorsEntry& entry) {
  uint64_t bits = kDtypes[entry.dtype].bits;
  for (const int64_t n : entry.shape) {
    if (__builtin_mul_overflow(bits, static_cast<uint64_t>(n), &bits)) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

// The data section is covered by the tensors exactly once.
void check_layout(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes, const std::string& origin) {
  std::vector<const SafetensorsEntry*> by_offset;
  by_offset.reserve(entries.size());
  for (const auto& e : entries) {
    if (e.end < e.begin || e.end > data_bytes) {
      fail(ExitCode::unreadable, origin, ": tensor ", in_quotes(e.name), " lies at bytes ", e.begin, "..", e.end, " of ",
           data_bytes, e.end > data_bytes ? "; is the file cut short?" : "");
    }
    if (tensor_bytes(e) != e.end - e.begin) {
      fail(ExitCode::unreadable, origin, ": tensor ", in_quotes(e.name), " has ", e.end - e.begin,
           " bytes, which its shape and dtype ", kDtypes[e.dtype].name, " do not give");
    }
    by_offset.push_back(&e);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const auto* a, const auto* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  uint64_t end = 0;
  for (const auto* e : by_offset) {
    if (e->begin != end) {
      fail(ExitCode::unreadable, origin, ": tensor ", in_quotes(e->name), " begins at byte ", e->begin,
           ", the one before ends at ", end, " (", e->begin < end ? "overlap" : "hole", ")");
    }
    end = e->end;
  }
  if (end != data_bytes) fail(ExitCode::unreadable, origin, ": tensors end at byte ", end, " of ", data_bytes, " of data");
}

// {"metadata": anything, "weight_map": {TENSOR: SHARD}}
class IndexEvents : public Events {
 public:
  WeightIndex index;
  bool has_map = false;

  bool null() { return scalar("null"); }
  bool boolean(bool) { return scalar("boolean"); }
  bool number_integer(json::number_integer_t) { return scalar("number"); }
  bool number_unsigned(json::number_unsigned_t) { return scalar("number"); }
  bool number_float(json::number_float_t, const std::string&) { return scalar("number"); }
  bool start_object(size_t) {
    if (in_map_ && depth_ >= 2) return refuse("weight_map holds an object");
    return open();
  }
  bool start_array(size_t) {
    if (depth_ == 0 || in_map_) return refuse("unexpected array");
    return open();
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (depth_ == 1) {
      in_map_ = name == "weight_map";
      if (in_map_ && std::exchange(has_map, true)) return refuse("duplicate key 'weight_map'");
    } else if (in_map_) {
      if (name.size() > kMaxName) return refuse("a tensor name is too long");
      tensor_ = std::move(name);
    }
    return true;
  }
  bool string(std::string& value) {
    if (!in_map_) return scalar("string");
    if (depth_ != 2) return refuse("weight_map is not an object");
    if (index.entries.size() >= kMaxTensorsPerFile) return refuse("too many tensors");
    const auto [at, added] = shard_numbers_.emplace(value, static_cast<uint32_t>(index.shards.size()));
    if (added) {
      if (index.shards.size() >= kMaxShards) return refuse("too many shards");
      const bool plain = !value.empty() && value.size() <= 255 && value.front() != '.' &&
                         value.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
      if (!plain) return refuse(concat("shard ", in_quotes(value), " is not a plain file name"));
      index.shards.push_back(value);
    }
    index.entries.push_back({std::move(tensor_), at->second});
    return true;
  }

 private:
  bool scalar(const char* what) { return in_map_ ? refuse(concat("weight_map holds a ", what)) : true; }
  bool open() { return ++depth_ <= 64 || refuse("nested too deep"); }
  bool close() {
    if (--depth_ == 1) in_map_ = false;
    return true;
  }

  int depth_ = 0;
  bool in_map_ = false;
  std::string tensor_;
  std::unordered_map<std::string, uint32_t> shard_numbers_;
};

}  // namespace

std::string_view safetensors_dtype_name(uint8_t dtype) { return kDtypes[dtype].name; }

std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view json_text, uint64_t data_bytes,
                                                       const std::string& origin) {
  if (json_text.empty() || json_text.front() != '{') fail(ExitCode::unreadable, origin, ": not a safetensors header");
  HeaderEvents events;
  if (!json::sax_parse(json_text.begin(), json_text.end(), &events)) {
    fail(ExitCode::unreadable, origin, ": safetensors header: ", events.fault);
  }
  auto& entries = events.entries;
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != entries.end()) fail(ExitCode::unreadable, origin, ": tensor ", in_quotes(twice->name), " is there twice");
  check_layout(entries, data_bytes, origin);
  return std::move(entries);
}

SafetensorsHeader read_safetensors_header(const File& file) {
  uint64_t header_bytes = 0;
  if (file.size() < sizeof header_bytes)
    fail(ExitCode::unreadable, file.path(), ": ", file.size(), " bytes are no safetensors file");
  file.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > kMaxSafetensorsHeader || header_bytes > file.size() - sizeof header_bytes) {
    fail(ExitCode::unreadable, file.path(), ": a safetensors header of ", header_bytes, " bytes is announced, the file has ",
         file.size(), " (limit ", kMaxSafetensorsHeader, ")");
  }
  std::string text(header_bytes, '\0');
  file.read(sizeof header_bytes, std::as_writable_bytes(std::span(text)));
  const uint64_t data_offset = sizeof header_bytes + header_bytes;
  return {data_offset, parse_safetensors_header(text, file.size() - data_offset, file.path())};
}

WeightIndex parse_weight_index(std::string_view json_text, const std::string& origin) {
  IndexEvents events;
  if (!json::sax_parse(json_text.begin(), json_text.end(), &events)) fail(ExitCode::unreadable, origin, ": ", events.fault);
  auto& entries = events.index.entries;
  if (!events.has_map || entries.empty()) fail(ExitCode::unreadable, origin, ": no weight_map");
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.tensor < b.tensor; });
  const auto twice =
      std::adjacent_find(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.tensor == b.tensor; });
  if (twice != entries.end()) fail(ExitCode::unreadable, origin, ": tensor ", in_quotes(twice->tensor), " is there twice");
  return std::move(events.index);
}

}  // namespace lockstep
