#include "commands/agree.h"

#include <algorithm>
#include <optional>

#include "base/bytes.h"

namespace lockstep {

namespace {

struct Outcome {
  bool ok = true;
  ExitCode code = ExitCode::done;
  std::string message;
};

Outcome outcome_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Error& e) {
    return {false, e.code, e.what()};
  } catch (const std::exception& e) {  // bad_alloc and the like
    return {false, ExitCode::other, e.what()};
  }
}

}  // namespace

void together(Communicator& world, const std::string& host, const std::function<void()>& work) {
  const Outcome mine = outcome_of(work);
  ByteWriter w;
  w.put(mine.ok);
  w.put(mine.code);
  w.put_string(mine.message);
  w.put_string(host);
  const auto all = world.exchange(w.bytes());

  std::optional<AgreedError> first;
  bool everywhere_the_same = true;
  std::string where;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    ByteReader r(all[rank]);
    const bool ok = r.get<bool>();
    const auto code = r.get<ExitCode>();
    const std::string message = r.get_string();
    if (ok) {
      everywhere_the_same = false;
    } else if (!first) {
      first = AgreedError{code, message};
      where = concat("[", r.get_string(), " r", rank, "/", all.size(), "] ");
    } else {
      everywhere_the_same = everywhere_the_same && message == first->message;
    }
  }
  if (!first) return;
  if (!everywhere_the_same && all.size() > 1) first->message = where + first->message;
  throw *first;
}

void agree_on(Communicator& world, const std::string& host, const std::vector<std::pair<std::string, std::string>>& facts) {
  ByteWriter w;
  w.put_string(host);
  w.put<uint64_t>(facts.size());
  for (const auto& [name, value] : facts) w.put_string(name), w.put_string(value);
  const auto all = world.exchange(w.bytes());

  ByteReader zero(all[0]);
  const std::string host_0 = zero.get_string();
  const auto n_facts = zero.get<uint64_t>();
  std::vector<ByteReader> others;
  std::vector<std::string> hosts;
  for (const auto& bytes : all) {
    others.emplace_back(bytes);
    hosts.push_back(others.back().get_string());
  }
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (others[rank].get<uint64_t>() != n_facts)
      throw AgreedError{ExitCode::environment,
                        concat("rank ", rank, " on ", hosts[rank], " sees other files than rank 0 on ", host_0)};
  for (uint64_t i = 0; i < n_facts; ++i) {
    const std::string name = zero.get_string(), value = zero.get_string();
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const std::string other_name = others[rank].get_string(), other = others[rank].get_string();
      if (other_name != name || other != value)
        throw AgreedError{ExitCode::environment,
                          concat(name, " differs between rank 0 on ", host_0, " (", value, ") and rank ", rank, " on ",
                                 hosts[rank], " (", other_name == name ? other : other_name, ")")};
    }
  }
}

std::string from_rank_0(Communicator& world, const std::string& text) {
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  std::vector<std::byte> bytes(p, p + (world.rank() == 0 ? text.size() : 0));
  world.broadcast(bytes, 0);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace lockstep
