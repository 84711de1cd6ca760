#include "checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "checkpoint/printable.h"

namespace lockstep {

namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;  // a vocabulary of 262144 takes about 15 MB
constexpr uint64_t kMaxTensors = uint64_t{1} << 20, kMaxKeys = uint64_t{1} << 16, kMaxArray = uint64_t{1} << 22;
constexpr uint64_t kMaxKeyBytes = 1 << 10, kMaxStringBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;

// Block sizes of every type the format knows, so that a tensor nobody asks for can still be measured.
struct GgmlType {
  uint32_t number;
  const char* name;
  uint32_t values, bytes;
  std::optional<StoredType> stored;
};
constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, StoredType::f32},
    {1, "F16", 1, 2, StoredType::f16},
    {2, "Q4_0", 32, 18, StoredType::q4_0},
    {3, "Q4_1", 32, 20, StoredType::q4_1},
    {6, "Q5_0", 32, 22, StoredType::q5_0},
    {7, "Q5_1", 32, 24, StoredType::q5_1},
    {8, "Q8_0", 32, 34, StoredType::q8_0},
    {9, "Q8_1", 32, 36, {}},
    {10, "Q2_K", 256, 84, StoredType::q2_k},
    {11, "Q3_K", 256, 110, StoredType::q3_k},
    {12, "Q4_K", 256, 144, StoredType::q4_k},
    {13, "Q5_K", 256, 176, StoredType::q5_k},
    {14, "Q6_K", 256, 210, StoredType::q6_k},
    {15, "Q8_K", 256, 292, {}},
    {16, "IQ2_XXS", 256, 66, {}},
    {17, "IQ2_XS", 256, 74, {}},
    {18, "IQ3_XXS", 256, 98, {}},
    {19, "IQ1_S", 256, 50, {}},
    {20, "IQ4_NL", 32, 18, StoredType::iq4_nl},
    {21, "IQ3_S", 256, 110, {}},
    {22, "IQ2_S", 256, 82, {}},
    {23, "IQ4_XS", 256, 136, StoredType::iq4_xs},
    {24, "I8", 1, 1, {}},
    {25, "I16", 1, 2, {}},
    {26, "I32", 1, 4, {}},
    {27, "I64", 1, 8, {}},
    {28, "F64", 1, 8, {}},
    {29, "IQ1_M", 256, 56, {}},
    {30, "BF16", 1, 2, StoredType::bf16},
    {34, "TQ1_0", 256, 54, {}},
    {35, "TQ2_0", 256, 66, {}},
    {39, "MXFP4", 32, 17, {}},
    {40, "NVFP4", 64, 36, {}},
};

const GgmlType* find_type(uint32_t number) {
  for (const auto& type : kTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

// Reads a file from its start, in blocks; each request is checked against what is left.
class Cursor {
 public:
  explicit Cursor(const File& file) : file_(file), end_(std::min(file.size(), kMaxHeaderBytes)) {}

  uint64_t position() const { return block_begin_ + at_; }
  uint64_t left() const { return end_ - position(); }

  template <class T>
  T get() {
    T value;
    copy(&value, sizeof value);
    return value;
  }
  std::string get_string(uint64_t limit, const char* what) {
    const auto n = get<uint64_t>();
    if (n > limit || n > left()) fault(what, " of ", n, " bytes");
    std::string text(n, '\0');
    copy(text.data(), n);
    return text;
  }
  template <class... Parts>
  [[noreturn]] void fault(const Parts&... parts) const {
    fail(ExitCode::unreadable, file_.path(), ": GGUF header at byte ", position(), ": ", parts...);
  }

 private:
  void copy(void* out, size_t n) {
    auto* bytes = static_cast<std::byte*>(out);
    if (n > left()) fault(file_.size() > end_ ? "header is too long" : "file ends early");
    while (n > 0) {
      if (at_ == block_.size()) refill();
      const size_t some = std::min(n, block_.size() - at_);
      std::memcpy(bytes, block_.data() + at_, some);
      bytes += some;
      n -= some;
      at_ += some;
    }
  }
  void refill() {
    block_begin_ += block_.size();
    at_ = 0;
    block_.resize(std::min<uint64_t>(kBlock, end_ - block_begin_));
    file_.read(block_begin_, block_);
  }

  static constexpr uint64_t kBlock = uint64_t{1} << 18;
  const File& file_;
  uint64_t end_, block_begin_ = 0;
  std::vector<std::byte> block_;
  size_t at_ = 0;
};

enum ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64, n_value_types };

constexpr std::array<uint64_t, n_value_types> kMinBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // of one value in the file

int64_t get_integer(Cursor& in, uint32_t type, const std::string& key) {
  switch (type) {
    case u8:
      return in.get<uint8_t>();
    case i8:
      return in.get<int8_t>();
    case u16:
      return in.get<uint16_t>();
    case i16:
      return in.get<int16_t>();
    case u32:
      return in.get<uint32_t>();
    case i32:
      return in.get<int32_t>();
    case i64:
      return in.get<int64_t>();
    default: {
      const auto value = in.get<uint64_t>();
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) in.fault(in_quotes(key), " is ", value);
      return static_cast<int64_t>(value);
    }
  }
}

bool get_boolean(Cursor& in, const std::string& key) {
  const auto value = in.get<uint8_t>();
  if (value > 1) in.fault(in_quotes(key), ": a boolean of ", int{value});
  return value == 1;
}

double get_float(Cursor& in, uint32_t type) { return type == f32 ? static_cast<double>(in.get<float>()) : in.get<double>(); }

template <class T, class Get>
GgufValue get_array(uint64_t n, Get&& get) {
  std::vector<T> values;
  values.reserve(n);  // at most kMaxArray, and the file has room for all of them
  for (uint64_t i = 0; i < n; ++i) values.push_back(get());
  return values;
}

GgufValue get_value(Cursor& in, uint32_t type, const std::string& key) {
  if (type >= n_value_types) in.fault(in_quotes(key), " has the unknown type ", type);
  if (type == f32 || type == f64) return get_float(in, type);
  if (type == boolean) return get_boolean(in, key);
  if (type == string) return in.get_string(kMaxStringBytes, "a string");
  if (type != array) return get_integer(in, type, key);

  const auto element = in.get<uint32_t>();
  const auto n = in.get<uint64_t>();
  if (element >= n_value_types || element == array) in.fault(in_quotes(key), " is an array of the unsupported type ", element);
  if (n > kMaxArray || n > in.left() / kMinBytes[element]) in.fault(in_quotes(key), " is an array of ", n, " values");
  if (element == f32 || element == f64) return get_array<double>(n, [&] { return get_float(in, element); });
  if (element == boolean) return get_array<bool>(n, [&] { return get_boolean(in, key); });
  if (element == string) return get_array<std::string>(n, [&] { return in.get_string(kMaxStringBytes, "a string"); });
  return get_array<int64_t>(n, [&] { return get_integer(in, element, key); });
}

GgufTensor get_tensor_info(Cursor& in) {
  GgufTensor tensor;
  tensor.name = in.get_string(kMaxKeyBytes, "a tensor name");
  const auto n_dims = in.get<uint32_t>();
  if (n_dims < 1 || n_dims > 4) in.fault("tensor ", in_quotes(tensor.name), " has ", n_dims, " dimensions");
  tensor.shape.resize(n_dims);
  for (uint32_t i = 0; i < n_dims; ++i)
    tensor.shape[n_dims - 1 - i] = get_integer(in, u64, tensor.name);  // fastest first in the file
  while (tensor.shape.size() > 1 && tensor.shape.front() == 1) tensor.shape.erase(tensor.shape.begin());
  tensor.type = in.get<uint32_t>();
  tensor.offset = in.get<uint64_t>();
  return tensor;
}

uint64_t tensor_bytes(const Cursor& in, const GgufTensor& tensor) {
  const GgmlType* type = find_type(tensor.type);
  if (!type) in.fault("tensor ", in_quotes(tensor.name), " has the unknown type ", tensor.type, "; ", kGgufSupported);
  uint64_t values = 1, bytes = 0;
  for (const int64_t n : tensor.shape) {
    if (n < 0 || __builtin_mul_overflow(values, static_cast<uint64_t>(n), &values))
      in.fault("tensor ", in_quotes(tensor.name), " is too large");
  }
  if (static_cast<uint64_t>(tensor.shape.back()) % type->values != 0) {
    in.fault("tensor ", in_quotes(tensor.name), ": rows of ", tensor.shape.back(), " are not whole blocks of ", type->name);
  }
  if (__builtin_mul_overflow(values / type->values, uint64_t{type->bytes}, &bytes))
    in.fault("tensor ", in_quotes(tensor.name), " is too large");
  return bytes;
}

// Makes offsets relative to the file, within it, aligned and without overlap.
void place_tensors(const Cursor& in, const File& file, uint64_t alignment, std::vector<GgufTensor>& tensors) {
  const uint64_t data_begin = (in.position() + alignment - 1) / alignment * alignment;
  const uint64_t data_bytes = file.size() > data_begin ? file.size() - data_begin : 0;
  struct Extent {
    uint64_t begin, end;
    const GgufTensor* tensor;
  };
  std::vector<Extent> extents;
  extents.reserve(tensors.size());
  for (auto& tensor : tensors) {
    const uint64_t bytes = tensor_bytes(in, tensor);
    if (tensor.offset % alignment != 0)
      in.fault("tensor ", in_quotes(tensor.name), " at ", tensor.offset, " is not aligned to ", alignment);
    if (tensor.offset > data_bytes || bytes > data_bytes - tensor.offset) {
      in.fault("tensor ", in_quotes(tensor.name), " has ", bytes, " bytes at ", tensor.offset, " of ", data_bytes,
               " bytes of data; is the file cut short?");
    }
    tensor.offset += data_begin;
    extents.push_back({tensor.offset, tensor.offset + bytes, &tensor});
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  for (size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].begin < extents[i - 1].end) {
      in.fault("tensors ", in_quotes(extents[i - 1].tensor->name), " and ", in_quotes(extents[i].tensor->name), " overlap");
    }
  }
}

}  // namespace

std::string gguf_type_name(uint32_t type) {
  const GgmlType* found = find_type(type);
  return found ? found->name : "type " + std::to_string(type);
}

std::optional<StoredType> gguf_stored_type(uint32_t type) {
  const GgmlType* found = find_type(type);
  return found ? found->stored : std::nullopt;
}

GgufHeader read_gguf_header(const File& file) {
  Cursor in(file);
  if (in.left() < 4 || in.get<std::array<char, 4>>() != std::array{'G', 'G', 'U', 'F'}) {
    fail(ExitCode::unreadable, file.path(), ": not a GGUF file");
  }
  const auto version = in.get<uint32_t>();
  if (version == 0x02000000 || version == 0x03000000) in.fault("big-endian GGUF files are not supported");
  if (version != 2 && version != 3) in.fault("GGUF version ", version, " is not supported; 2 and 3 are");
  const auto n_tensors = in.get<uint64_t>();
  const auto n_keys = in.get<uint64_t>();
  constexpr uint64_t kMinKey = 8 + 4 + 1, kMinTensor = 8 + 4 + 8 + 4 + 8;
  if (n_keys > kMaxKeys || n_keys > in.left() / kMinKey) in.fault(n_keys, " metadata keys are announced");
  if (n_tensors > kMaxTensors || n_tensors > in.left() / kMinTensor) in.fault(n_tensors, " tensors are announced");

  GgufHeader header;
  for (uint64_t i = 0; i < n_keys; ++i) {
    const std::string key = in.get_string(kMaxKeyBytes, "a key");
    const auto type = in.get<uint32_t>();
    if (!header.metadata.emplace(key, get_value(in, type, key)).second) in.fault("key ", in_quotes(key), " is there twice");
  }
  uint64_t alignment = 32;
  if (const auto at = header.metadata.find("general.alignment"); at != header.metadata.end()) {
    const int64_t* value = std::get_if<int64_t>(&at->second);
    if (!value || *value < 1 || static_cast<uint64_t>(*value) > kMaxAlignment || (*value & (*value - 1)) != 0) {
      in.fault("general.alignment is not a power of two up to ", kMaxAlignment);
    }
    alignment = static_cast<uint64_t>(*value);
  }
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < n_tensors; ++i) {
    header.tensors.push_back(get_tensor_info(in));
    if (!names.insert(header.tensors.back().name).second)
      in.fault("tensor ", in_quotes(header.tensors.back().name), " is there twice");
  }
  place_tensors(in, file, alignment, header.tensors);
  return header;
}

}  // namespace lockstep
