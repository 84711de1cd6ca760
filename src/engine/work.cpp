#include "engine/work.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "engine/work_order.h"

namespace lockstep {

namespace {

enum class Kind : uint8_t { want, range, report, stop };

}  // namespace

WorkTotals& WorkTotals::operator+=(const WorkTotals& o) {
  n_done += o.n_done;
  n_failed += o.n_failed;
  n_prompt_tokens += o.n_prompt_tokens;
  n_cached_tokens += o.n_cached_tokens;
  n_generated_tokens += o.n_generated_tokens;
  return *this;
}

WorkServer::WorkServer(std::span<const InputLine> lines, std::vector<uint32_t> to_run, std::vector<int> roots)
    : reports(roots.size()),
      lines_(lines),
      order_(std::move(to_run)),
      roots_(std::move(roots)),
      asked_(roots_.size()),
      told_(roots_.size()) {
  order_for_prefixes(lines_, order_);
  size_t begin = 0;
  for (const size_t end : deal_work(lines_, order_, roots_.size())) {
    stretches_.push_back({begin, end, cost_of(lines_, std::span(order_).subspan(begin, end - begin))});
    begin = end;
  }
}

void WorkServer::take_half_of_the_costliest(Stretch& empty) {
  Stretch& full = *std::max_element(stretches_.begin(), stretches_.end(),
                                    [](const Stretch& a, const Stretch& b) { return a.cost < b.cost; });
  if (full.begin == full.end) return;
  const WorkCut cut = cut_work(lines_, order_, full.begin, full.end, full.cost / 2);
  empty = {cut.at, full.end, full.cost - cut.cost};
  full = {full.begin, cut.at, cut.cost};
}

// Guided self-scheduling: a share of the stretch, so that the last ranges are single lines.
std::vector<InputLine> WorkServer::next_range(int replica, size_t most) {
  Stretch& mine = stretches_.at(static_cast<size_t>(replica));
  if (mine.begin == mine.end) take_half_of_the_costliest(mine);
  const size_t left = mine.end - mine.begin;
  std::vector<InputLine> range;
  for (size_t n = std::min({std::max<size_t>(left / 2, 1), std::clamp<size_t>(most, 1, kMostLines), left}); n > 0; --n) {
    range.push_back(lines_[order_[mine.begin++]]);
    mine.cost -= work_cost(range.back());
  }
  if (range.empty()) told_[static_cast<size_t>(replica)] = true;
  return range;
}

bool WorkServer::finished() const { return stopped_ || std::find(told_.begin(), told_.end(), false) == told_.end(); }

bool WorkServer::others_have_asked(int rank) const {
  for (size_t r = 0; r < roots_.size(); ++r)
    if (roots_[r] != rank && !asked_[r]) return false;
  return true;
}

void WorkServer::poll(Communicator& world) {
  while (const auto message = world.poll()) {
    ByteReader r(message->bytes);
    const auto kind = r.get<Kind>();
    if (kind == Kind::want) {
      const auto replica = std::find(roots_.begin(), roots_.end(), message->from) - roots_.begin();
      check(replica < static_cast<ptrdiff_t>(roots_.size()), "rank ", message->from,
            " asks for work, and is no replica's root");
      asked_[static_cast<size_t>(replica)] = true;
      ByteWriter answer;
      answer.put(Kind::range);
      answer.put_vector(next_range(static_cast<int>(replica), r.get<uint32_t>()));
      world.post(answer.bytes(), message->from);
    } else if (kind == Kind::report) {
      const auto replica = r.get<int32_t>();
      check(0 <= replica && static_cast<size_t>(replica) < roots_.size(), "a report of replica ", replica);
      reports[replica] = r.get<WorkTotals>();
    } else if (kind == Kind::stop) {
      stop(world);
    } else {
      fail(ExitCode::communication, "rank ", message->from, " sent an unknown message");
    }
  }
}

void WorkServer::stop(Communicator& world) {
  if (std::exchange(stopped_, true)) return;
  ByteWriter w;
  w.put(Kind::stop);
  for (const int root : roots_)
    if (root != world.rank()) world.post(w.bytes(), root);
}

void ask_to_stop(Communicator& world) {
  ByteWriter w;
  w.put(Kind::stop);
  world.post(w.bytes(), 0);
}

WorkTotals WorkServer::totals() const {
  WorkTotals sum;
  for (const WorkTotals& report : reports) sum += report;
  return sum;
}

void WorkClient::poll(size_t n_lines) {
  if (server_ != nullptr) {
    while (!no_more_ && lines_.size() < n_lines) receive(server_->next_range(replica_, n_lines - lines_.size()));
    return;
  }
  while (!no_more_ && lines_.size() + n_asked_ < n_lines) {
    const size_t n = std::min(n_lines - lines_.size() - n_asked_, WorkServer::kMostLines);
    ByteWriter w;
    w.put(Kind::want);
    w.put(static_cast<uint32_t>(n));
    world_.post(w.bytes(), 0);
    asked_.push_back(n);
    n_asked_ += n;
  }
  while (const auto message = world_.poll()) {
    ByteReader r(message->bytes);
    const auto kind = r.get<Kind>();
    if (kind == Kind::range) {
      check(!asked_.empty(), "a range that nobody asked for");
      n_asked_ -= asked_.front();
      asked_.pop_front();
      receive(r.get_vector<InputLine>());
    } else if (kind == Kind::stop) {
      stop_ = true;
    } else {
      fail(ExitCode::communication, "rank ", message->from, " sent an unknown message");
    }
  }
}

void WorkClient::receive(std::vector<InputLine> range) {
  if (range.empty()) no_more_ = true;
  lines_.insert(lines_.end(), range.begin(), range.end());
}

std::optional<InputLine> WorkClient::take() {
  if (lines_.empty()) return std::nullopt;
  const InputLine line = lines_.front();
  lines_.pop_front();
  return line;
}

void WorkClient::announce_stop() {
  if (std::exchange(stop_, true)) return;
  if (server_ != nullptr) return server_->stop(world_);
  ask_to_stop(world_);
}

void WorkClient::report(const WorkTotals& totals) {
  if (server_ != nullptr) {
    server_->reports[replica_] = totals;
    return;
  }
  ByteWriter w;
  w.put(Kind::report);
  w.put<int32_t>(replica_);
  w.put(totals);
  world_.post(w.bytes(), 0);
}

}  // namespace lockstep
