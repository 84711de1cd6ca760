#include "tests/ops/apart_ops.h"

#include <sys/mman.h>

#include <cstring>
#include <map>

namespace lockstep {
namespace {

constexpr size_t kPage = 65536;  // a multiple of the machine's

struct Area {
  size_t bytes, mapped;
};
std::map<std::byte*, Area>& areas() {  // of all Ops; one thread uses them
  static std::map<std::byte*, Area> all;
  return all;
}

class Opened {  // Ops in a call, which reach the memory
 public:
  explicit Opened(Ops& ops) : ops_(ops) { protect(PROT_READ | PROT_WRITE); }
  ~Opened() { protect(PROT_NONE); }
  Ops* operator->() const { return &ops_; }

 private:
  static void protect(int how) {
    for (const auto& [begin, area] : areas()) check(mprotect(begin, area.mapped, how) == 0, "mprotect");
  }
  Ops& ops_;
};

class ApartOps final : public Ops {
 public:
  explicit ApartOps(std::unique_ptr<Ops> inner) : inner_(std::move(inner)) {}
  std::string kernel_class() const override { return "apart " + inner_->kernel_class(); }

  Buffer allocate(size_t bytes) override {
    check(bytes < size_t{1} << 40, bytes, " bytes");
    const size_t mapped = bytes / kPage * kPage + kPage;
    void* data = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(data != MAP_FAILED, "no memory of ", bytes, " bytes");
    areas()[static_cast<std::byte*>(data)] = {bytes, mapped};
    return {data, bytes, +[](void* p) {
              const auto at = areas().find(static_cast<std::byte*>(p));
              munmap(p, at->second.mapped);
              areas().erase(at);
            }};
  }
  Buffer allocate_host(size_t bytes) override { return inner_->allocate_host(bytes); }
  void upload(TensorView to, const float* from) override { own(to), inner()->upload(to, from); }
  void download(float* to, TensorView from) override { own(from), inner()->download(to, from); }
  LinearWeight load_linear(int64_t n_out, int64_t k, DType dtype, const RowReader& read_rows) override {
    check(dtype == DType::bf16 && k % 8 == 0, name_of(dtype), " weight of ", n_out, " x ", k);
    LinearWeight weight = inner_->load_linear(n_out, k, dtype, read_rows);
    Buffer apart = allocate(weight.data.bytes());
    {
      const Opened opened(*inner_);
      std::memcpy(apart.data(), weight.data.data(), apart.bytes());
    }
    weight.data = std::move(apart);
    return weight;
  }
  size_t kv_page_bytes(DType dtype, int64_t n_kv_heads, int64_t head_dim) const override {
    check(dtype == DType::bf16, "pages of ", name_of(dtype));
    return inner_->kv_page_bytes(dtype, n_kv_heads, head_dim);
  }

  void copy_pages(PageWay way, const KvPool& pool, std::span<const HostPage> pages) override {
    check(pool.page_bytes % 16 == 0, "pages of ", pool.page_bytes, " bytes");
    const auto page_cols = static_cast<int64_t>(pool.page_bytes / 2);
    own({pool.data, DType::bf16, pool.n_layers * pool.n_pages, page_cols, page_cols});
    inner()->copy_pages(way, pool, pages);
  }

  // Its arrays lie apart too; those that only Ops read are null.
  DeviceBatch upload_batch(const StepBatch& b) override {
    batch_ = inner_->upload_batch(b);
    rows_ = allocate((b.samples.size() + b.scores.size() + 1) * sizeof(int32_t));
    DeviceBatch apart{.host = &b};
    apart.sample_rows = reinterpret_cast<const int32_t*>(rows_.data());
    apart.score_rows = apart.sample_rows + b.samples.size();
    return apart;
  }
  void embed(TensorView out, TensorView values, const DeviceBatch& b) override {
    bf16(out), bf16(values), table(values), inner()->embed(out, values, known(b));
  }
  void rms_norm(TensorView out, TensorView x, TensorView weight, float eps) override {
    in_eights(out), in_eights(x), own(weight), inner()->rms_norm(out, x, weight, eps);
  }
  void add(TensorView residual, TensorView delta) override { bf16(residual), bf16(delta), inner()->add(residual, delta); }
  void add_rms_norm(TensorView out, TensorView residual, TensorView delta, TensorView weight, float eps) override {
    in_eights(out), in_eights(residual), in_eights(delta), own(weight);
    inner()->add_rms_norm(out, residual, delta, weight, eps);
  }
  void linear(TensorView out, TensorView x, const LinearWeight& weight) override {
    in_eights(x), own(out), own(weight.data.matrix(weight.dtype, weight.n_out, weight.k));
    check(out.cols % 8 == 0 && out.row_stride % 8 == 0, "a product of ", out.cols, " columns, ", out.row_stride, " apart");
    if (weight.bias.bytes() > 0) own(weight.bias.matrix(DType::f32, 1, weight.n_out));
    inner()->linear(out, x, weight);
  }
  void rope_store_kv(TensorView qkv, TensorView q_norm, TensorView k_norm, float eps, TensorView rope, HeadShape heads,
                     KvPages kv, const DeviceBatch& b) override {
    in_eights(qkv), table(rope), paged(heads, kv);
    for (const TensorView& norm : {q_norm, k_norm})
      if (norm.data) own(norm);
    inner()->rope_store_kv(qkv, q_norm, k_norm, eps, rope, heads, kv, known(b));
  }
  void attention(TensorView out, TensorView qkv, HeadShape heads, KvPages kv, float scale, int32_t window,
                 const DeviceBatch& b) override {
    in_eights(out), in_eights(qkv), paged(heads, kv);
    inner()->attention(out, qkv, heads, kv, scale, window, known(b));
  }
  void silu_mul(TensorView out, TensorView gate_up) override { bf16(out), bf16(gate_up), inner()->silu_mul(out, gate_up); }
  void gather_rows(TensorView out, TensorView x, const int32_t* rows) override {
    const auto* samples = reinterpret_cast<const int32_t*>(rows_.data());
    check(rows == samples || rows == samples + batch_.host->samples.size(), "rows that aren't those of the batch");
    bf16(out), bf16(x), inner()->gather_rows(out, x, rows == samples ? batch_.sample_rows : batch_.score_rows);
  }
  void sample(TensorView logits, const DeviceBatch& b) override { own(logits), inner()->sample(logits, known(b)); }
  void score(TensorView logits, const DeviceBatch& b, Range r) override { own(logits), inner()->score(logits, known(b), r); }
  StepOutcome collect(int64_t step) override { return inner_->collect(step); }

 private:
  Opened inner() const { return Opened(*inner_); }
  static void own(TensorView v) {
    const auto end = v.data + ((v.rows - 1) * v.row_stride + v.cols) * static_cast<int64_t>(size_of(v.dtype));
    auto area = areas().upper_bound(v.data);
    check(area != areas().begin() && end <= (--area)->first + area->second.bytes, "memory that isn't these Ops'");
  }
  static void bf16(TensorView v) { own(v), check(v.dtype == DType::bf16, "activations of ", name_of(v.dtype)); }
  static void table(TensorView v) { own(v), check(v.row_stride == v.cols, "a table with gaps between its rows"); }
  static void in_eights(TensorView v) {
    bf16(v), check(v.cols % 8 == 0 && v.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0, v.cols,
                   " columns, ", v.row_stride, " apart");
  }
  static void paged(HeadShape h, KvPages kv) {
    check(h.head_dim == 16 || h.head_dim == 32 || h.head_dim == 64 || h.head_dim == 128, "head_dim ", h.head_dim);
    own({kv.data, kv.dtype, kv.n_pages, h.n_kv_heads * 2 * kPageSize * h.head_dim, h.n_kv_heads * 2 * kPageSize * h.head_dim});
  }
  const DeviceBatch& known(const DeviceBatch& b) const {
    check(b.host == batch_.host, "a batch that was not uploaded last");
    return batch_;
  }

  std::unique_ptr<Ops> inner_;
  DeviceBatch batch_;
  Buffer rows_;
};

}  // namespace

std::unique_ptr<Ops> make_apart_ops(std::unique_ptr<Ops> inner) { return std::make_unique<ApartOps>(std::move(inner)); }

}  // namespace lockstep
