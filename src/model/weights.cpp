#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/pieces.h"
#include "model/rope.h"

namespace lockstep {

namespace {

struct Part {  // rows of one tensor of the checkpoint
  std::string name;
  Range rows;
};

// No trained weight comes near it. A flipped bit of an exponent goes beyond, and sums of squares may then overflow.
constexpr float kMaxWeight = 0x1p40f;

// Bits without sign order as the magnitudes do: NaN and infinity come last.
uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7FFF'FFFFu; }

bool all_sound(std::span<const float> values) {
  std::atomic<bool> sound = true;
  const auto n = static_cast<int64_t>(values.size());
  in_pieces(n, n, 8, [&](int64_t begin, int64_t end) {
    uint32_t largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, magnitude(values[static_cast<size_t>(i)]));
    if (largest > magnitude(kMaxWeight)) sound = false;
  });
  return sound;
}

// Damaged weights are refused here with their place: later they are a NaN in every line, or in none and the text is wrong.
void read_checked(const Checkpoint& checkpoint, NodeReader& reader, const std::string& name, Range rows, float* out) {
  checkpoint.read_rows(name, rows, out, reader.fetch_of(name));
  const int64_t cols = checkpoint.shape(name).second;
  if (all_sound({out, static_cast<size_t>(rows.size() * cols)})) return;
  for (int64_t i = 0; i < rows.size() * cols; ++i) {
    if (std::abs(out[i]) <= kMaxWeight) continue;
    fail(ExitCode::unreadable, "tensor '", name, "' holds ", out[i], " at row ", rows.begin + i / cols, ", column ", i % cols,
         ": the weights are damaged");
  }
}

TensorView rows_of(const TensorView& table, Range rows) {
  return {table.data + rows.begin * table.row_stride * static_cast<int64_t>(size_of(table.dtype)), table.dtype, rows.size(),
          table.cols, table.row_stride};
}

// Reads the parts one below the other as if they were one matrix.
RowReader stacked(const Checkpoint& checkpoint, NodeReader& reader, std::vector<Part> parts, int64_t cols) {
  return [&checkpoint, &reader, parts = std::move(parts), cols](Range rows, float* out) {
    int64_t first = 0;  // row of the stack where the part begins
    for (const Part& part : parts) {
      const Range wanted{std::max(rows.begin, first) - first, std::min(rows.end, first + part.rows.size()) - first};
      if (wanted.size() > 0) {
        read_checked(checkpoint, reader, part.name, {part.rows.begin + wanted.begin, part.rows.begin + wanted.end}, out);
        out += wanted.size() * cols;
      }
      first += part.rows.size();
    }
  };
}

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const Shard& shard, DType dtype, Ops& ops, NodeReader& reader)
      : checkpoint_(checkpoint), config_(checkpoint.config()), shard_(shard), dtype_(dtype), ops_(ops), reader_(reader) {}

  size_t bytes = 0;

  Vector vector(const std::vector<float>& values, int64_t rows, int64_t cols) {
    Vector v{ops_.allocate(values.size() * sizeof(float)), {}};
    v.view = v.data.matrix(DType::f32, rows, cols);
    ops_.upload(v.view, values.data());
    bytes += v.data.bytes();
    return v;
  }

  Vector vector(const std::string& name) {
    std::vector<float> values(checkpoint_.shape(name).second);
    read_checked(checkpoint_, reader_, name, {0, 1}, values.data());
    return vector(values, 1, static_cast<int64_t>(values.size()));
  }

  LinearWeight linear(const std::vector<Part>& parts, int64_t k, bool with_bias = false) {
    int64_t n_out = 0;
    for (const Part& part : parts) n_out += part.rows.size();
    std::vector<Part> weights, biases;
    for (const Part& part : parts) weights.push_back({part.name + ".weight", part.rows});
    LinearWeight weight = ops_.load_linear(n_out, k, dtype_, stacked(checkpoint_, reader_, std::move(weights), k));
    if (with_bias) weight.bias = bias(parts, n_out);
    bytes += weight.data.bytes() + weight.bias.bytes();
    return weight;
  }

  LayerWeights layer(int64_t i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    const int64_t hidden = config_.hidden;
    const Range hidden_rows = shard_.mine(shard_.hidden_cols), ffn_rows = shard_.mine(shard_.ffn_cols);
    LayerWeights w;
    w.attn_norm = vector(prefix + "input_layernorm.weight");
    w.ffn_norm = vector(prefix + "post_attention_layernorm.weight");
    if (config_.qk_norm) {
      w.q_norm = vector(prefix + "self_attn.q_norm.weight");
      w.k_norm = vector(prefix + "self_attn.k_norm.weight");
    }
    w.qkv = linear({{prefix + "self_attn.q_proj", shard_.q_rows},
                    {prefix + "self_attn.k_proj", shard_.kv_rows},
                    {prefix + "self_attn.v_proj", shard_.kv_rows}},
                   hidden, config_.qkv_bias);
    w.o = linear({{prefix + "self_attn.o_proj", hidden_rows}}, config_.n_heads * config_.head_dim, config_.o_bias);
    w.gate_up = linear({{prefix + "mlp.gate_proj", ffn_rows}, {prefix + "mlp.up_proj", ffn_rows}}, hidden, config_.mlp_bias);
    w.down = linear({{prefix + "mlp.down_proj", hidden_rows}}, config_.ffn, config_.mlp_bias);
    return w;
  }

  // The embedding table, in blocks of rows so that its f32 form never stands in memory whole.
  Buffer embedding(TensorView* view) {
    constexpr int64_t kBlockRows = 1024;
    const int64_t cols = config_.hidden;
    Buffer table = ops_.allocate(shard_.vocab * cols * size_of(dtype_));
    *view = table.matrix(dtype_, shard_.vocab, cols);
    std::vector<float> block(kBlockRows * cols);
    for (int64_t row = 0; row < shard_.vocab; row += kBlockRows) {
      const int64_t n = std::min(kBlockRows, shard_.vocab - row);
      read_checked(checkpoint_, reader_, "model.embed_tokens.weight", {row, row + n}, block.data());
      ops_.upload(rows_of(*view, {row, row + n}), block.data());
    }
    bytes += table.bytes();
    return table;
  }

  // The head of tied embeddings: rows of the table that is already here. Rounding them once more changes nothing.
  LinearWeight tied_head(const TensorView& table, Range rows) {
    LinearWeight weight = ops_.load_linear(rows.size(), table.cols, dtype_, [&](Range wanted, float* out) {
      ops_.download(out, rows_of(table, {rows.begin + wanted.begin, rows.begin + wanted.end}));
    });
    bytes += weight.data.bytes();
    return weight;
  }

 private:
  Buffer bias(const std::vector<Part>& parts, int64_t n_out) {
    std::vector<float> values;
    for (const Part& part : parts) {
      std::vector<float> whole(checkpoint_.shape(part.name + ".bias").second);
      read_checked(checkpoint_, reader_, part.name + ".bias", {0, 1}, whole.data());
      values.insert(values.end(), whole.begin() + part.rows.begin, whole.begin() + part.rows.end);
    }
    Buffer buffer = ops_.allocate(n_out * sizeof(float));
    ops_.upload(buffer.matrix(DType::f32, 1, n_out), values.data());
    return buffer;
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const Shard& shard_;
  DType dtype_;
  Ops& ops_;
  NodeReader& reader_;
};

Weights load(const Checkpoint& checkpoint, const Shard& shard, DType dtype, int64_t max_model_len, Ops& ops,
             NodeReader& reader) {
  const ModelConfig& config = checkpoint.config();
  Loader loader(checkpoint, shard, dtype, ops, reader);
  Weights w;
  w.rope = loader.vector(rope_table(config.rope, config.head_dim, max_model_len), max_model_len, config.head_dim);
  const bool head_is_tied = shard.last_stage && config.tied_embeddings;
  const Range head_rows = shard.mine(shard.vocab_cols);  // fewer chunks than ranks: some have none
  if (shard.first_stage || head_is_tied) w.embedding = loader.embedding(&w.embedding_view);
  if (head_is_tied && head_rows.size() > 0) w.lm_head = loader.tied_head(w.embedding_view, head_rows);
  if (!shard.first_stage) {
    loader.bytes -= w.embedding.bytes();
    w.embedding = {}, w.embedding_view = {};
  }
  for (int64_t i = shard.layers.begin; i < shard.layers.end; ++i) w.layers.push_back(loader.layer(i));
  if (shard.last_stage) {
    w.final_norm = loader.vector("model.norm.weight");
    if (!head_is_tied && head_rows.size() > 0) w.lm_head = loader.linear({{"lm_head", head_rows}}, config.hidden);
  }
  w.bytes = loader.bytes;
  return w;
}

}  // namespace

std::vector<LinearShape> linear_shapes(const ModelConfig& config, const Shard& shard, DType dtype, int64_t max_tokens,
                                       int64_t max_samples) {
  const int64_t hidden_rows = shard.mine(shard.hidden_cols).size();
  std::vector<LinearShape> shapes{
      {shard.q_rows.size() + 2 * shard.kv_rows.size(), config.hidden, dtype, max_tokens},
      {hidden_rows, config.n_heads * config.head_dim, dtype, max_tokens},
      {2 * shard.mine(shard.ffn_cols).size(), config.hidden, dtype, max_tokens},
      {hidden_rows, config.ffn, dtype, max_tokens},
  };
  if (shard.last_stage) shapes.push_back({shard.mine(shard.vocab_cols).size(), config.hidden, DType::f32, max_samples});
  return shapes;
}

uint64_t expected_weight_bytes(const ModelConfig& config, const Shard& shard, DType dtype, int64_t max_model_len) {
  const std::vector<LinearShape> shapes = linear_shapes(config, shard, dtype, 0, 0);
  int64_t elements = 0;
  for (size_t i = 0; i < shapes.size(); ++i)
    elements += shapes[i].n_out * shapes[i].k * (i < kLayerShapes ? shard.layers.size() : 1);
  if (shard.first_stage || (shard.last_stage && config.tied_embeddings))  // the table is there while the head is made
    elements += shard.vocab * config.hidden;
  return static_cast<uint64_t>(elements) * size_of(dtype) +
         static_cast<uint64_t>(max_model_len * config.head_dim) * sizeof(float);
}

Weights load_weights(const Checkpoint& checkpoint, const Shard& shard, DType dtype, int64_t max_model_len, Ops& ops,
                     NodeReader& reader) {
  try {
    return load(checkpoint, shard, dtype, max_model_len, ops, reader);
  } catch (const Error& e) {
    reader.fail(e.code, e.what());
    throw;
  } catch (const std::exception& e) {  // bad_alloc and the like
    reader.fail(ExitCode::other, e.what());
    throw;
  }
}

}  // namespace lockstep
