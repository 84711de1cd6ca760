#include "telemetry/timings_h5.h"

#include <fcntl.h>
#include <hdf5.h>
#include <hdf5_hl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/durable_file.h"
#include "base/error.h"
#include "telemetry/hdf5_handle.h"

namespace lockstep {

namespace {

Handle own(hid_t id, herr_t (*close)(hid_t), const char* what) {
  return Handle(id, close, ExitCode::output_io, concat("HDF5: ", what));
}

void ensure(herr_t code, const char* what) {
  if (code < 0) fail(ExitCode::output_io, "HDF5: ", what);
}

// Of variable length, as Python's str comes and goes.
void write_attribute(hid_t object, const char* name, const char* text) {
  const Handle type = own(H5Tcopy(H5T_C_S1), H5Tclose, "string type");
  ensure(H5Tset_size(type, H5T_VARIABLE), "variable length");
  ensure(H5Tset_cset(type, H5T_CSET_UTF8), "character set");
  const Handle space = own(H5Screate(H5S_SCALAR), H5Sclose, "scalar space");
  const Handle attribute = own(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "attribute");
  ensure(H5Awrite(attribute, type, &text), "writing an attribute");
}

constexpr size_t kChunkRows = 16384;

Handle text_type() {
  Handle type = own(H5Tcopy(H5T_C_S1), H5Tclose, "string type");
  ensure(H5Tset_size(type, H5T_VARIABLE), "variable length");
  ensure(H5Tset_cset(type, H5T_CSET_UTF8), "character set");
  return type;
}

// A group of equal-length columns; the first one is the dimension scale of the others.
class Table {
 public:
  Table(hid_t parent, const std::string& name, size_t n_rows)
      : group_(own(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "group")),
        n_rows_(n_rows) {}

  // An empty column of n_rows, to be written in slices.
  Handle create(const char* name, const char* units, const char* long_name, hid_t type) {
    const hsize_t n = n_rows_;
    const Handle space = own(H5Screate_simple(1, &n, nullptr), H5Sclose, "space");
    const Handle properties = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "properties");
    if (n_rows_ > 0) {
      const hsize_t chunk = std::min<hsize_t>(n, kChunkRows);
      ensure(H5Pset_chunk(properties, 1, &chunk), "chunk");
      ensure(H5Pset_deflate(properties, 1), "deflate");
    }
    // Slices fill whole chunks, so that a column needs to remember one chunk of numbers and not a megabyte of them.
    const Handle access = own(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose, "access");
    ensure(H5Pset_chunk_cache(access, 1, kChunkRows * sizeof(int64_t), 1), "chunk cache");
    Handle set = own(H5Dcreate2(group_, name, type, space, H5P_DEFAULT, properties, access), H5Dclose, name);
    write_attribute(set, "units", units);
    write_attribute(set, "long_name", long_name);
    if (scale_.empty()) {
      scale_ = name;
      ensure(H5DSset_scale(set, name), "dimension scale");
    } else {
      const Handle scale = own(H5Dopen2(group_, scale_.c_str(), H5P_DEFAULT), H5Dclose, "dimension scale");
      ensure(H5DSattach_scale(set, scale, 0), "attaching the dimension scale");
    }
    return set;
  }

  void column(const char* name, const char* units, const char* long_name, hid_t type, const void* values) {
    const Handle set = create(name, units, long_name, type);
    if (n_rows_ > 0) ensure(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "writing a dataset");
  }

  template <class T>
  void numbers(const char* name, const char* units, const char* long_name, const std::function<T(size_t)>& value) {
    std::vector<T> values(n_rows_);
    for (size_t i = 0; i < n_rows_; ++i) values[i] = value(i);
    column(name, units, long_name, std::is_same_v<T, double> ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64, values.data());
  }
  void integers(const char* name, const char* units, const char* long_name, const std::function<int64_t(size_t)>& value) {
    numbers<int64_t>(name, units, long_name, value);
  }
  void seconds(const char* name, const char* long_name, const std::function<double(size_t)>& value) {
    numbers<double>(name, "s", long_name, value);
  }
  void reals(const char* name, const char* units, const char* long_name, const std::function<double(size_t)>& value) {
    numbers<double>(name, units, long_name, value);
  }
  void texts(const char* name, const char* long_name, const std::function<const char*(size_t)>& value) {
    std::vector<const char*> values(n_rows_);
    for (size_t i = 0; i < n_rows_; ++i) values[i] = value(i);
    column(name, "1", long_name, text_type(), values.data());
  }

 private:
  Handle group_;
  size_t n_rows_;
  std::string scale_;
};

// One column of /requests, filled slice by slice.
struct RequestColumn {
  Handle set, type;
  std::function<void(std::span<const RequestTiming>, size_t begin)> write;
};

template <class T>
RequestColumn request_column(Handle set, Handle type, const std::function<T(const RequestTiming&)>& value) {
  const hid_t set_id = set, type_id = type;
  return {std::move(set), std::move(type), [=](std::span<const RequestTiming> rows, size_t begin) {
            std::vector<T> values;
            values.reserve(rows.size());
            for (const RequestTiming& row : rows) values.push_back(value(row));
            const hsize_t first = begin, n = rows.size();
            const Handle file_space = own(H5Dget_space(set_id), H5Sclose, "space");
            ensure(H5Sselect_hyperslab(file_space, H5S_SELECT_SET, &first, nullptr, &n, nullptr), "slice");
            const Handle memory_space = own(H5Screate_simple(1, &n, nullptr), H5Sclose, "space");
            ensure(H5Dwrite(set_id, type_id, memory_space, file_space, H5P_DEFAULT, values.data()), "writing a dataset");
          }};
}

void write_requests(hid_t file, const RequestSource& source) {
  Table t(file, "requests", source.n_rows);
  std::vector<RequestColumn> columns;
  const auto integers = [&](const char* name, const char* units, const char* long_name, auto value) {
    Handle type = own(H5Tcopy(H5T_NATIVE_INT64), H5Tclose, "integer type");
    Handle set = t.create(name, units, long_name, type);
    columns.push_back(request_column<int64_t>(std::move(set), std::move(type), value));
  };
  const auto seconds = [&](const char* name, const char* long_name, auto value) {
    Handle type = own(H5Tcopy(H5T_NATIVE_DOUBLE), H5Tclose, "real type");
    Handle set = t.create(name, "s", long_name, type);
    columns.push_back(request_column<double>(std::move(set), std::move(type), value));
  };
  const auto texts = [&](const char* name, const char* long_name, auto value) {
    Handle type = text_type();
    Handle set = t.create(name, "1", long_name, type);
    columns.push_back(request_column<const char*>(std::move(set), std::move(type), value));
  };
  using Row = const RequestTiming&;
  integers("line", "1", "line of the input, from 1", [](Row r) { return r.line; });
  texts("custom_id", "custom_id of the line", [](Row r) { return r.custom_id.c_str(); });
  integers("attempt", "1", "run that finished the line, from 1", [](Row r) { return r.attempt; });
  integers("replica", "1", "data-parallel replica", [](Row r) { return r.replica; });
  seconds("admitted", "admitted, since the start of its attempt; NaN: never", [](Row r) { return r.admitted_s; });
  seconds("first_token", "first token, since the start of its attempt; NaN: none", [](Row r) { return r.first_token_s; });
  seconds("done", "last token, since the start of its attempt; NaN: never begun", [](Row r) { return r.done_s; });
  integers("prompt_tokens", "tokens", "tokens of the prompts, once a choice", [](Row r) { return r.n_prompt; });
  integers("cached_tokens", "tokens", "prompt tokens found in the prefix cache", [](Row r) { return r.n_cached; });
  integers("generated_tokens", "tokens", "sampled tokens", [](Row r) { return r.n_generated; });
  texts("finish_reason", "stop, length or error", [](Row r) { return r.finish_reason.c_str(); });

  for (size_t begin = 0; begin < source.n_rows; begin += kChunkRows) {
    const size_t end = std::min(begin + kChunkRows, source.n_rows);
    const std::vector<RequestTiming> rows = source.rows(begin, end);
    check(rows.size() == end - begin, "timings: ", rows.size(), " rows, not ", end - begin);
    for (const RequestColumn& column : columns) column.write(rows, begin);
  }
}

void write_steps(hid_t parent, int rank, const std::vector<Timings::Step>& rows, const Timings& timings) {
  std::vector<RankPlace> places;
  places.reserve(rows.size());
  for (const Timings::Step& row : rows) {
    const bool is_same = !places.empty() && row.attempt == (&row)[-1].attempt;
    places.push_back(is_same ? places.back() : timings.place_of(row.attempt, rank));
  }
  Table t(parent, concat("rank_", rank), rows.size());
  t.integers("row", "1", "row", [&](size_t i) { return static_cast<int64_t>(i); });
  t.integers("attempt", "1", "run, from 1", [&](size_t i) { return rows[i].attempt; });
  t.integers("step", "1", "number of the step within its run", [&](size_t i) { return rows[i].timing.step; });
  t.integers("replica", "1", "data-parallel replica of the rank; its ranks run the same steps; -1: unknown",
             [&](size_t i) { return places[i].replica; });
  t.integers("stage", "1", "pipeline stage of the rank", [&](size_t i) { return places[i].stage; });
  t.integers("tensor_rank", "1", "tensor-parallel index of the rank", [&](size_t i) { return places[i].tensor_rank; });
  t.seconds("start", "start of the step, since the start of its attempt", [&](size_t i) { return rows[i].timing.start_s; });
  t.seconds("duration", "duration of the step: compute + communication + waiting",
            [&](size_t i) { return rows[i].timing.duration_s; });
  t.seconds("compute", "in computation and scheduling", [&](size_t i) { return rows[i].timing.compute_s(); });
  t.seconds("communication", "in collectives, sends and receives, waiting for peers in them included",
            [&](size_t i) { return rows[i].timing.comm_s - rows[i].timing.wait_s; });
  t.seconds("waiting", "for the events of the replica's root", [&](size_t i) { return rows[i].timing.wait_s; });
  t.integers("prefill_tokens", "tokens", "prompt tokens", [&](size_t i) { return rows[i].timing.n_prefill_tokens; });
  t.integers("decode_tokens", "tokens", "generated tokens fed back", [&](size_t i) { return rows[i].timing.n_decode_tokens; });
  t.integers("sequences", "1", "sequences in the batch", [&](size_t i) { return rows[i].timing.n_seqs; });
  t.seconds("device", "on the GPU, from the step's first kernel to its last; NaN where there is none",
            [&](size_t i) { return rows[i].timing.device_s; });
  t.integers("pages", "1", "KV pages in use", [&](size_t i) { return rows[i].timing.n_pages; });
}

void write_gpu(hid_t parent, int rank, const std::vector<Timings::Gpu>& rows) {
  Table t(parent, concat("rank_", rank), rows.size());
  const auto reading = [&](double GpuReading::*field) {
    return [&rows, field](size_t i) { return rows[i].sample.reading.*field; };
  };
  t.integers("row", "1", "row", [&](size_t i) { return static_cast<int64_t>(i); });
  t.integers("attempt", "1", "run that measured it, from 1", [&](size_t i) { return rows[i].attempt; });
  t.seconds("time", "since the start of the attempt", [&](size_t i) { return rows[i].sample.time_s; });
  t.reals("power", "W", "power of the rank's GPU", reading(&GpuReading::power_w));
  t.reals("temperature", "degC", "temperature of the GPU", reading(&GpuReading::temperature_c));
  t.reals("sm_clock", "MHz", "clock of the multiprocessors", reading(&GpuReading::sm_clock_mhz));
  t.reals("memory_clock", "MHz", "clock of the memory", reading(&GpuReading::memory_clock_mhz));
  t.reals("utilisation", "%", "share of the time in which a kernel ran", reading(&GpuReading::utilisation_percent));
  t.reals("memory_utilisation", "%", "share of the time in which memory was read or written",
          reading(&GpuReading::memory_utilisation_percent));
  t.integers("memory_used", "bytes", "memory in use on the GPU, by anyone; -1: unknown",
             [&](size_t i) { return rows[i].sample.reading.memory_used_bytes; });
  t.reals("energy", "J", "energy of the GPU since its first row of the attempt", reading(&GpuReading::energy_j));
  t.integers("throttle_reasons", "1", "what held the clocks down, as a bit mask (nvmlClocksEventReasons); -1: unknown",
             [&](size_t i) { return rows[i].sample.reading.throttle_reasons; });
}

// Phases follow each other without a gap, so each begins where the one before it, of its rank and attempt, ends.
void write_phases(hid_t file, const std::vector<Timings::Phase>& rows) {
  std::map<Timings::Seat, double> ends;
  std::vector<double> starts;
  starts.reserve(rows.size());
  for (const Timings::Phase& row : rows) {
    double& end = ends[{row.attempt, row.rank}];
    starts.push_back(end);
    end += row.timing.seconds;
  }
  Table t(file, "phases", rows.size());
  t.integers("row", "1", "row", [&](size_t i) { return static_cast<int64_t>(i); });
  t.texts("phase", "name of the phase", [&](size_t i) { return rows[i].timing.name.c_str(); });
  t.integers("attempt", "1", "run, from 1", [&](size_t i) { return rows[i].attempt; });
  t.integers("rank", "1", "rank", [&](size_t i) { return rows[i].rank; });
  t.seconds("start", "start of the phase, since the start of its attempt", [&](size_t i) { return starts[i]; });
  t.seconds("seconds", "duration of the phase", [&](size_t i) { return rows[i].timing.seconds; });
}

void write_file(const std::string& path, const Timings& timings, const RequestSource& requests) {
  const Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access");
  configure_access(access);
  Handle file = own(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, "creating timings.h5");
  write_attribute(file, "title", "timings of a lockstep run");
  write_attribute(file, "time", "seconds since the start of the attempt, by the clock of the rank that measured");
  write_requests(file, requests);
  {
    const Handle steps = own(H5Gcreate2(file, "steps", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "group");
    for (const auto& [rank, rows] : timings.steps) write_steps(steps, rank, rows, timings);
  }
  {
    const Handle gpu = own(H5Gcreate2(file, "gpu", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "group");
    for (const auto& [rank, rows] : timings.gpus) write_gpu(gpu, rank, rows);
  }
  write_phases(file, timings.phases);
  ensure(H5Fflush(file, H5F_SCOPE_GLOBAL), "flushing timings.h5");
  if (!file.close()) fail(ExitCode::output_io, "HDF5: closing timings.h5");
}

void verify_file(const std::string& path) {
  const Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access");
  configure_access(access);
  const Handle file = own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose, "reopening timings.h5");
}

}  // namespace

void write_timings_h5(const std::string& path, const Timings& timings) {
  const auto& rows = timings.requests;
  const auto slice = [&](size_t begin, size_t end) {
    return std::vector(rows.begin() + static_cast<ptrdiff_t>(begin), rows.begin() + static_cast<ptrdiff_t>(end));
  };
  write_timings_h5(path, timings, {rows.size(), slice});
}

void write_timings_h5(const std::string& path, const Timings& timings, const RequestSource& requests) {
  (void)H5dont_atexit();  // a file that a full disk kept from closing would crash the library's clean-up (1.10.8)
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // errors come back as our own, not on stderr
  const std::string temporary = path + ".tmp";
  try {
    write_file(temporary, timings, requests);
    verify_file(temporary);
    FileHandle written = open_file(temporary, O_RDONLY);
    if (const int error = try_sync(written.get())) fail_io(temporary, "fdatasync", error);
    if (std::rename(temporary.c_str(), path.c_str()) != 0) fail_io(path, "rename", errno);
  } catch (...) {
    std::remove(temporary.c_str());
    throw;
  }
  fsync_directory(parent_of(path));
}

}  // namespace lockstep
