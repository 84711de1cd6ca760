// The reader of timings.h5 takes the file for hostile: only hard links are followed, only data that lie in the file itself are
// read, and what they may take is bounded by the file's size before anything is allocated.
#include <hdf5.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "telemetry/hdf5_handle.h"
#include "telemetry/timings_h5.h"

namespace lockstep {

namespace {

constexpr size_t kMaxRanks = 65536;
constexpr hsize_t kTextRows = 4096;  // texts are read so many rows at a time

// A row holds several times that differ from all others, so its columns take more than two bytes of the file. Small files may
// be repetitive.
uint64_t rows_possible(uint64_t file_bytes) { return file_bytes / 2 + 4096; }

struct Source {
  const std::string& path;
  uint64_t rows_left;
  uint64_t text_bytes_left;  // rows may share a long text: what they take is not what the file holds

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ExitCode::unreadable, path, ": ", parts...);
  }
  Handle own(hid_t id, herr_t (*close)(hid_t), const std::string& what) const {
    return Handle(id, close, ExitCode::unreadable, concat(path, ": ", what));
  }
};

void require_hard_link(const Source& source, hid_t parent, const std::string& name) {
  H5L_info_t link;
  if (H5Lget_info(parent, name.c_str(), &link, H5P_DEFAULT) < 0) source.refuse("lacks ", name);
  if (link.type != H5L_TYPE_HARD) source.refuse(name, " is a link to somewhere else");
}

Handle open_group(const Source& source, hid_t parent, const std::string& name) {
  require_hard_link(source, parent, name);
  return source.own(H5Gopen2(parent, name.c_str(), H5P_DEFAULT), H5Gclose, concat(name, " is no readable group"));
}

// Memory for the texts that the library reads, up to a limit.
struct TextBlocks {
  uint64_t& bytes_left;
  std::vector<std::unique_ptr<char[]>> blocks = {};
  bool is_full = false;

  static void* allocate(size_t n, void* blocks) {
    auto& all = *static_cast<TextBlocks*>(blocks);
    all.is_full = n > all.bytes_left;
    if (all.is_full) return nullptr;
    all.bytes_left -= n;
    return all.blocks.emplace_back(std::make_unique<char[]>(n)).get();
  }
  static void release(void*, void*) {}
};

// The columns of one group, equally long.
class TableReader {
 public:
  TableReader(Source& source, hid_t parent, const std::string& name, const char* first_column)
      : source_(source), name_(name), group_(open_group(source, parent, name)) {
    const Handle set = open(first_column);
    n_rows_ = length_of(set, first_column);
    if (n_rows_ > source.rows_left)
      source.refuse("says it holds ", n_rows_, " rows in ", name, ", more than fit into a file of its size");
    source.rows_left -= n_rows_;
  }
  size_t n_rows() const { return n_rows_; }

  template <class T>
  void numbers(const char* column, std::vector<T>& values) {
    const Handle set = open(column);
    const H5T_class_t wanted = std::is_floating_point_v<T> ? H5T_FLOAT : H5T_INTEGER;
    require(set, column, wanted);
    values.resize(n_rows_);
    const hid_t type = std::is_floating_point_v<T> ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64;
    if (n_rows_ > 0 && H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0)
      source_.refuse(name_, "/", column, " can't be read");
  }

  // set(row, text)
  template <class Set>
  void texts(const char* column, const Set& set_row) {
    const Handle set = open(column);
    require(set, column, H5T_STRING);
    const Handle stored = source_.own(H5Dget_type(set), H5Tclose, "has a text without type");
    if (H5Tis_variable_str(stored) <= 0) source_.refuse(name_, "/", column, " holds no texts of variable length");
    const Handle type = source_.own(H5Tcopy(H5T_C_S1), H5Tclose, "text type");
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5Tget_cset(stored));
    const Handle space = source_.own(H5Dget_space(set), H5Sclose, "has a column without extent");
    TextBlocks texts{.bytes_left = source_.text_bytes_left};
    const Handle transfer = source_.own(H5Pcreate(H5P_DATASET_XFER), H5Pclose, "transfer");
    H5Pset_vlen_mem_manager(transfer, TextBlocks::allocate, &texts, TextBlocks::release, nullptr);
    std::vector<char*> rows;
    for (hsize_t at = 0; at < n_rows_; at += kTextRows) {
      const hsize_t n = std::min<hsize_t>(kTextRows, n_rows_ - at);
      const Handle slab = source_.own(H5Screate_simple(1, &n, nullptr), H5Sclose, "text rows");
      H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, nullptr, &n, nullptr);
      rows.assign(n, nullptr);
      if (H5Dread(set, type, slab, space, transfer, rows.data()) < 0)
        source_.refuse(name_, "/", column, texts.is_full ? " holds texts too long" : " can't be read");
      for (hsize_t i = 0; i < n; ++i) set_row(at + i, lossy_utf8(rows[i] != nullptr ? rows[i] : ""));
      texts.blocks.clear();
    }
  }

 private:
  Handle open(const char* column) {
    require_hard_link(source_, group_, column);
    return source_.own(H5Dopen2(group_, column, H5P_DEFAULT), H5Dclose, concat(name_, "/", column, " is no readable dataset"));
  }
  hsize_t length_of(hid_t set, const char* column) {
    const Handle space = source_.own(H5Dget_space(set), H5Sclose, "has a column without extent");
    hsize_t n = 0;
    if (H5Sget_simple_extent_ndims(space) != 1 || H5Sget_simple_extent_dims(space, &n, nullptr) < 0)
      source_.refuse(name_, "/", column, " is not one-dimensional");
    return n;
  }
  void require(hid_t set, const char* column, H5T_class_t wanted) {
    if (const hsize_t n = length_of(set, column); n != n_rows_)
      source_.refuse(name_, "/", column, " has ", n, " rows, the first column ", n_rows_);
    const Handle type = source_.own(H5Dget_type(set), H5Tclose, "has a column without type");
    if (H5Tget_class(type) != wanted) source_.refuse(name_, "/", column, " has another type than expected");
    const Handle created = source_.own(H5Dget_create_plist(set), H5Pclose, "has a column without properties");
    if (H5Pget_layout(created) == H5D_VIRTUAL || H5Pget_external_count(created) != 0)
      source_.refuse(name_, "/", column, " lies in another file");
  }

  Source& source_;
  std::string name_;
  Handle group_;
  hsize_t n_rows_ = 0;
};

template <class T>
T narrow(const Source& source, const char* column, int64_t value) {
  if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max())
    source.refuse(column, " holds ", value, ", which is out of range");
  return static_cast<T>(value);
}

// Column by column into rows, with one buffer of each kind.
template <class Row>
class RowFiller {
 public:
  RowFiller(Source& source, TableReader& table, std::vector<Row>& rows) : source_(source), table_(table), rows_(rows) {
    rows_.resize(table.n_rows());
  }
  template <class Field>
  void integers(const char* column, const Field& field) {
    table_.numbers(column, integers_);
    for (size_t i = 0; i < rows_.size(); ++i) {
      auto& to = field(rows_[i]);
      to = narrow<std::decay_t<decltype(to)>>(source_, column, integers_[i]);
    }
  }
  template <class Field>
  void reals(const char* column, const Field& field) {
    table_.numbers(column, reals_);
    for (size_t i = 0; i < rows_.size(); ++i) field(rows_[i]) = reals_[i];
  }
  template <class Field>
  void texts(const char* column, const Field& field) {
    table_.texts(column, [&](size_t i, std::string text) { field(rows_[i]) = std::move(text); });
  }

 private:
  Source& source_;
  TableReader& table_;
  std::vector<Row>& rows_;
  std::vector<int64_t> integers_;
  std::vector<double> reals_;
};

void read_requests(Source& source, hid_t file, Timings& timings) {
  TableReader table(source, file, "requests", "line");
  RowFiller<RequestTiming> fill(source, table, timings.requests);
  fill.integers(
      "line", [](auto& r) -> auto& { return r.line; });
  fill.texts(
      "custom_id", [](auto& r) -> auto& { return r.custom_id; });
  fill.integers(
      "attempt", [](auto& r) -> auto& { return r.attempt; });
  fill.integers(
      "replica", [](auto& r) -> auto& { return r.replica; });
  fill.reals(
      "admitted", [](auto& r) -> auto& { return r.admitted_s; });
  fill.reals(
      "first_token", [](auto& r) -> auto& { return r.first_token_s; });
  fill.reals(
      "done", [](auto& r) -> auto& { return r.done_s; });
  fill.integers(
      "prompt_tokens", [](auto& r) -> auto& { return r.n_prompt; });
  fill.integers(
      "cached_tokens", [](auto& r) -> auto& { return r.n_cached; });
  fill.integers(
      "generated_tokens", [](auto& r) -> auto& { return r.n_generated; });
  fill.texts(
      "finish_reason", [](auto& r) -> auto& { return r.finish_reason; });
}

void read_steps(Source& source, hid_t parent, int rank, Timings& timings) {
  struct Row {
    Timings::Step step;
    RankPlace place;
    double communication_s = 0;
  };
  std::vector<Row> rows;
  TableReader table(source, parent, concat("rank_", rank), "row");
  RowFiller<Row> fill(source, table, rows);
  fill.integers(
      "attempt", [](auto& r) -> auto& { return r.step.attempt; });
  fill.integers(
      "step", [](auto& r) -> auto& { return r.step.timing.step; });
  fill.integers(
      "replica", [](auto& r) -> auto& { return r.place.replica; });
  fill.integers(
      "stage", [](auto& r) -> auto& { return r.place.stage; });
  fill.integers(
      "tensor_rank", [](auto& r) -> auto& { return r.place.tensor_rank; });
  fill.reals(
      "start", [](auto& r) -> auto& { return r.step.timing.start_s; });
  fill.reals(
      "duration", [](auto& r) -> auto& { return r.step.timing.duration_s; });
  fill.reals(
      "communication", [](auto& r) -> auto& { return r.communication_s; });
  fill.reals(
      "waiting", [](auto& r) -> auto& { return r.step.timing.wait_s; });
  fill.integers(
      "prefill_tokens", [](auto& r) -> auto& { return r.step.timing.n_prefill_tokens; });
  fill.integers(
      "decode_tokens", [](auto& r) -> auto& { return r.step.timing.n_decode_tokens; });
  fill.integers(
      "sequences", [](auto& r) -> auto& { return r.step.timing.n_seqs; });
  fill.integers(
      "pages", [](auto& r) -> auto& { return r.step.timing.n_pages; });
  std::vector<Timings::Step>& steps = timings.steps[rank];
  steps.reserve(rows.size());
  for (Row& row : rows) {
    row.step.timing.comm_s = row.communication_s + row.step.timing.wait_s;
    if (steps.empty() || steps.back().attempt != row.step.attempt) timings.places[{row.step.attempt, rank}] = row.place;
    steps.push_back(row.step);
  }
}

void read_gpu(Source& source, hid_t parent, int rank, Timings& timings) {
  TableReader table(source, parent, concat("rank_", rank), "row");
  RowFiller<Timings::Gpu> fill(source, table, timings.gpus[rank]);
  fill.integers(
      "attempt", [](auto& r) -> auto& { return r.attempt; });
  fill.reals(
      "time", [](auto& r) -> auto& { return r.sample.time_s; });
  const auto reals = [&](const char* column, double GpuReading::*field) {
    fill.reals(
        column, [field](auto& r) -> auto& { return r.sample.reading.*field; });
  };
  const auto integers = [&](const char* column, int64_t GpuReading::*field) {
    fill.integers(
        column, [field](auto& r) -> auto& { return r.sample.reading.*field; });
  };
  reals("power", &GpuReading::power_w);
  reals("temperature", &GpuReading::temperature_c);
  reals("sm_clock", &GpuReading::sm_clock_mhz);
  reals("memory_clock", &GpuReading::memory_clock_mhz);
  reals("utilisation", &GpuReading::utilisation_percent);
  reals("memory_utilisation", &GpuReading::memory_utilisation_percent);
  reals("energy", &GpuReading::energy_j);
  integers("memory_used", &GpuReading::memory_used_bytes);
  integers("throttle_reasons", &GpuReading::throttle_reasons);
}

void read_phases(Source& source, hid_t file, Timings& timings) {
  TableReader table(source, file, "phases", "row");
  RowFiller<Timings::Phase> fill(source, table, timings.phases);
  fill.texts(
      "phase", [](auto& r) -> auto& { return r.timing.name; });
  fill.integers(
      "attempt", [](auto& r) -> auto& { return r.attempt; });
  fill.integers(
      "rank", [](auto& r) -> auto& { return r.rank; });
  fill.reals(
      "seconds", [](auto& r) -> auto& { return r.timing.seconds; });
}

std::vector<int> ranks_in(const Source& source, hid_t group, const char* group_name) {
  std::vector<std::string> names;
  const auto collect = [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
    auto& all = *static_cast<std::vector<std::string>*>(to);
    all.emplace_back(name);
    return all.size() > kMaxRanks ? -1 : 0;
  };
  hsize_t at = 0;
  if (H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, &at, collect, &names) < 0)
    source.refuse(group_name, " can't be listed, or holds more than ", kMaxRanks, " ranks");
  std::vector<int> ranks;
  for (const std::string& name : names) {
    int rank = -1;
    const char* digits = name.c_str() + std::min<size_t>(name.size(), 5);
    const auto [end, error] = std::from_chars(digits, name.c_str() + name.size(), rank);
    if (name.compare(0, 5, "rank_") != 0 || error != std::errc() || *end != '\0' || rank < 0)
      source.refuse(group_name, " holds ", lossy_utf8(name), ", which is no rank");
    ranks.push_back(rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace

Timings read_timings_h5(const std::string& path) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) fail(ExitCode::unreadable, path, ": ", error.message());
  if (!std::filesystem::is_regular_file(path, error)) fail(ExitCode::unreadable, path, ": is no file");
  Source source{.path = path, .rows_left = rows_possible(bytes), .text_bytes_left = 4 * bytes + (uint64_t{16} << 20)};
  const Handle access = source.own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access");
  configure_access(access);
  const Handle file = source.own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose,
                                 "is no whole HDF5 file (cut short, damaged, or locked)");
  Timings timings;
  read_requests(source, file, timings);
  const Handle steps = open_group(source, file, "steps");
  for (const int rank : ranks_in(source, steps, "steps")) read_steps(source, steps, rank, timings);
  if (H5Lexists(file, "gpu", H5P_DEFAULT) > 0) {  // files of earlier versions have none
    const Handle gpu = open_group(source, file, "gpu");
    for (const int rank : ranks_in(source, gpu, "gpu")) read_gpu(source, gpu, rank, timings);
  }
  read_phases(source, file, timings);
  return timings;
}

}  // namespace lockstep
