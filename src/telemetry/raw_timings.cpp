#include "telemetry/raw_timings.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <tuple>

#include "base/durable_file.h"
#include "base/hash.h"
#include "base/log.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr size_t kFlushBytes = 64 << 10;
constexpr double kFlushSeconds = 1;
constexpr uint32_t kMaxPayload = 1 << 20;

enum class Kind : uint8_t { request, step, phase, place, gpu };

fs::path directory_of(const std::string& out_dir) { return fs::path(out_dir) / "journal" / "timings"; }

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

RequestTiming get_request_timing(ByteReader& r) {
  RequestTiming t;
  t.line = r.get<int64_t>();
  t.custom_id = r.get_string();
  t.attempt = r.get<int32_t>();
  t.replica = r.get<int32_t>();
  t.admitted_s = r.get<double>();
  t.first_token_s = r.get<double>();
  t.done_s = r.get<double>();
  t.n_prompt = r.get<int32_t>();
  t.n_cached = r.get<int32_t>();
  t.n_generated = r.get<int32_t>();
  t.finish_reason = r.get_string();
  return t;
}

struct RawFile {
  int attempt = 0, rank = 0;
  fs::path path;
};

// In order of attempts, then ranks. Other names are left alone.
std::vector<RawFile> raw_files(const std::string& out_dir) {
  std::vector<RawFile> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory_of(out_dir), error), end; !error && entry != end; entry.increment(error)) {
    RawFile file{.path = entry->path()};
    int length = 0;
    const std::string name = entry->path().filename();
    if (std::sscanf(name.c_str(), "e%9d-r%9d.bin%n", &file.attempt, &file.rank, &length) == 2 &&
        static_cast<size_t>(length) == name.size() && file.attempt > 0 && file.rank >= 0)
      files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(),
            [](const RawFile& a, const RawFile& b) { return std::tie(a.attempt, a.rank) < std::tie(b.attempt, b.rank); });
  return files;
}

struct RawHead {
  uint32_t length = 0, crc = 0;  // of the payload
};

bool is_good(const RawHead& head, std::span<const std::byte> payload) { return crc32c(as_text(payload)) == head.crc; }

// Whole records of one file, up to the first torn one; on_record gets where each begins.
bool read_file(const std::string& path, const std::function<bool(ByteReader&, uint64_t)>& on_record) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> payload;
  for (uint64_t offset = 0;; offset += sizeof(RawHead) + payload.size()) {
    RawHead head;
    if (!file.read(reinterpret_cast<char*>(&head), sizeof head)) return file.gcount() == 0;
    if (head.length > kMaxPayload) return false;
    payload.resize(head.length);
    if (!file.read(reinterpret_cast<char*>(payload.data()), head.length) || !is_good(head, payload)) return false;
    ByteReader r(payload);
    if (!on_record(r, offset)) return false;
  }
}

}  // namespace

RawTimings::RawTimings(const std::string& out_dir, int64_t epoch, int rank) {
  std::error_code ignored;
  fs::create_directories(directory_of(out_dir), ignored);
  char name[64];
  std::snprintf(name, sizeof name, "e%04lld-r%04d.bin", static_cast<long long>(epoch), rank);
  path_ = directory_of(out_dir) / name;
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) log_warning(path_, ": ", std::strerror(errno), "; the timings of this rank are lost");
}

RawTimings::~RawTimings() {
  flush();
  if (fd_ >= 0) ::close(fd_);
}

void RawTimings::add(const RequestTiming& t) {
  ByteWriter w;
  w.put(Kind::request);
  w.put(t.line);
  w.put_string(t.custom_id);
  w.put(t.attempt);
  w.put(t.replica);
  w.put(t.admitted_s);
  w.put(t.first_token_s);
  w.put(t.done_s);
  w.put(t.n_prompt);
  w.put(t.n_cached);
  w.put(t.n_generated);
  w.put_string(t.finish_reason);
  append(w.bytes());
  flush();  // before its record is committed: a kill keeps the one with the other
}

void RawTimings::add(const StepTiming& t) {
  ByteWriter w;
  w.put(Kind::step);
  w.put(t);
  append(w.bytes());
  if (t.start_s < flushed_s_ + kFlushSeconds) return;
  flush();
  flushed_s_ = t.start_s;
}

void RawTimings::add(const PhaseTiming& t) {
  ByteWriter w;
  w.put(Kind::phase);
  w.put(t.seconds);
  w.put_string(t.name);
  append(w.bytes());
  flush();
}

void RawTimings::add(const RankPlace& place) {
  ByteWriter w;
  w.put(Kind::place);
  w.put(place);
  append(w.bytes());
  flush();
}

void RawTimings::add(std::span<const GpuSample> samples) {
  if (samples.empty()) return;
  for (const GpuSample& sample : samples) {
    ByteWriter w;
    w.put(Kind::gpu);
    w.put(sample);
    append(w.bytes());
  }
  flush();
}

void RawTimings::append(std::span<const std::byte> payload) {
  if (payload.size() > kMaxPayload) return;
  const uint32_t head[2] = {static_cast<uint32_t>(payload.size()), crc32c(as_text(payload))};
  const auto* p = reinterpret_cast<const std::byte*>(head);
  buffer_.insert(buffer_.end(), p, p + sizeof head);
  buffer_.insert(buffer_.end(), payload.begin(), payload.end());
  if (buffer_.size() >= kFlushBytes) flush();
}

void RawTimings::flush() {
  size_t at = 0;
  while (fd_ >= 0 && at < buffer_.size()) {
    const ssize_t n = ::write(fd_, buffer_.data() + at, buffer_.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      log_warning(path_, ": ", std::strerror(errno), "; no further timings of this rank");
      ::close(fd_);
      fd_ = -1;
      break;
    }
    at += static_cast<size_t>(n);
  }
  buffer_.clear();
}

RankPlace Timings::place_of(int32_t attempt, int32_t rank) const {
  const auto found = places.find({attempt, rank});
  return found == places.end() ? RankPlace{} : found->second;
}

RawTimingsReader::RawTimingsReader(const std::string& out_dir) {
  for (const RawFile& file : raw_files(out_dir)) {
    paths_.push_back(file.path);
    seats_.emplace_back(file.attempt, file.rank);
  }
  check(paths_.size() < size_t{1} << 20, out_dir, ": ", paths_.size(), " files of raw timings");
}

Timings RawTimingsReader::read(const std::function<void(RequestTiming&&, RawPlace)>& on_request) const {
  Timings timings;
  for (size_t i = 0; i < paths_.size(); ++i) {
    const auto [attempt, rank] = seats_[i];
    const auto take = [&](ByteReader& r, uint64_t offset) {
      switch (r.get<Kind>()) {
        case Kind::request:
          on_request(get_request_timing(r), {.file = i + 1, .offset = offset});
          return true;
        case Kind::step:
          timings.steps[rank].push_back({attempt, r.get<StepTiming>()});
          return true;
        case Kind::phase: {
          const auto seconds = r.get<double>();
          timings.phases.push_back({attempt, rank, {r.get_string(), seconds}});
          return true;
        }
        case Kind::place:
          timings.places[{attempt, rank}] = r.get<RankPlace>();
          return true;
        case Kind::gpu:
          timings.gpus[rank].push_back({attempt, r.get<GpuSample>()});
          return true;
      }
      return false;
    };
    try {
      if (!read_file(paths_[i], take)) ++timings.n_damaged;
    } catch (const Error&) {  // a payload of another version
      ++timings.n_damaged;
    }
  }
  return timings;
}

std::vector<RequestTiming> RawTimingsReader::requests_at(std::span<const RawPlace> places) const {
  std::vector<uint32_t> order(places.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t i) { return std::tuple<uint64_t, uint64_t>(places[i].file, places[i].offset); });
  std::vector<RequestTiming> requests(places.size());
  FileHandle file;
  uint64_t opened = 0;
  std::vector<std::byte> payload;
  for (const uint32_t i : order) {
    const RawPlace place = places[i];
    check(place.known() && place.file <= paths_.size(), "a request that is in no file");
    const std::string& path = paths_[place.file - 1];
    if (opened != place.file) file = open_file(path, O_RDONLY);
    opened = place.file;
    const auto read = [&](void* to, size_t n, uint64_t offset) {
      return read_at(file.get(), static_cast<char*>(to), n, offset, path) == n;
    };
    RawHead head;
    bool good = read(&head, sizeof head, place.offset) && head.length <= kMaxPayload;
    payload.resize(good ? head.length : 0);
    good = good && read(payload.data(), payload.size(), place.offset + sizeof head) && is_good(head, payload);
    if (!good) fail(ExitCode::output_io, path, ": the record at byte ", uint64_t{place.offset}, " is no longer what it was");
    ByteReader r(payload);
    check(r.get<Kind>() == Kind::request, path, ": no request at byte ", uint64_t{place.offset});
    requests[i] = get_request_timing(r);
  }
  return requests;
}

Timings read_timings(const std::string& out_dir) {
  std::vector<RequestTiming> rows;
  Timings timings = RawTimingsReader(out_dir).read([&](RequestTiming&& t, RawPlace) { rows.push_back(std::move(t)); });
  // A line that was run again (its record was not committed when a run was killed) counts with its last attempt. The same line
  // may have had another number then: its name is custom_id.
  std::stable_sort(rows.begin(), rows.end(), [](const RequestTiming& a, const RequestTiming& b) {
    return a.custom_id != b.custom_id ? a.custom_id < b.custom_id : a.attempt > b.attempt;
  });
  rows.erase(std::unique(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.custom_id == b.custom_id; }),
             rows.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
  timings.requests = std::move(rows);
  return timings;
}

int32_t last_raw_attempt(const std::string& out_dir) {
  const std::vector<RawFile> files = raw_files(out_dir);
  return files.empty() ? 0 : files.back().attempt;
}

void remove_timings(const std::string& out_dir) {
  std::error_code ignored;
  fs::remove_all(directory_of(out_dir), ignored);
}

}  // namespace lockstep
