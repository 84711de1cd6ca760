// Any bytes in a journal: as a shard, an epoch file, a manifest or a lock. No crash, no line that was not written, and the
// scan in blocks finds what a look at each line finds.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "journal/directory_lock.h"
#include "journal/epoch.h"
#include "journal/journal.h"
#include "journal/manifest.h"

namespace {

using namespace lockstep;

void require(bool ok) {
  if (!ok) std::abort();
}

struct Directory {
  Directory() {
    std::string name = (::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/lockstep-fuzz-XXXXXX");
    require(::mkdtemp(name.data()) != nullptr);
    path = name;
    std::filesystem::create_directories(path + "/journal/epochs");
  }
  ~Directory() { std::filesystem::remove_all(path); }
  void put(const std::string& name, std::string_view bytes) const {
    std::ofstream(path + "/journal/" + name, std::ios::binary | std::ios::trunc) << bytes;
  }
  void remove(const std::string& name) const { std::filesystem::remove(path + "/journal/" + name); }
  std::string path;
};

void try_shard(const Directory& directory, std::string_view bytes) {
  directory.put("e0001-w000.jsonl", bytes);
  const JournalState state = recover_journal(directory.path);
  int64_t n_good = 0, n_bad = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t feed = bytes.find('\n', at);
    const bool whole = feed != std::string_view::npos;
    const auto line = bytes.substr(at, whole ? feed - at : feed);
    ++(whole && parse_line(line, 1) ? n_good : n_bad);
    at += line.size() + 1;
  }
  require(n_good == static_cast<int64_t>(state.done.size()) + state.n_duplicates && n_bad == state.n_damaged);
  for (const auto& [id, done] : state.done) {
    std::string again;
    append_line(again, {id, done.content, done.failed != 0, read_record(state, done)}, 1);
    require(bytes.find(again) != std::string_view::npos);
  }
  directory.remove("e0001-w000.jsonl");
}

void try_epoch(const Directory& directory, std::string_view bytes) {
  std::string shard;
  append_line(shard, {{1, 2}, 3, false, "{}"}, 1);
  directory.put("e0001-w000.jsonl", shard);
  directory.put("epochs/0002.json", bytes);
  const JournalState state = recover_journal(directory.path);
  require(state.done.size() <= 1 && state.last_epoch == 2);
  directory.remove("epochs/0002.json");
  directory.remove("e0001-w000.jsonl");
}

template <class Call>
void may_refuse(Call call) {
  try {
    call();
  } catch (const Error& e) {
    require(e.code == ExitCode::usage);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Directory directory;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'e':
      try_epoch(directory, bytes);
      break;
    case 'm':
      directory.put("manifest.json", bytes);
      may_refuse([] { recover_journal(directory.path); });
      may_refuse([] { check_start(directory.path, {}, {}); });
      directory.remove("manifest.json");
      break;
    case 'l':
      directory.put("lock", bytes);
      may_refuse([] { const DirectoryLock lock(directory.path, {.dead_after_s = 1e9}); });
      directory.remove("lock");
      break;
    default:
      try_shard(directory, bytes);
  }
  return 0;
}
