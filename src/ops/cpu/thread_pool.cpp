#include "ops/cpu/thread_pool.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

// A pause of a few tens of cycles is what a spinning hyperthread owes its neighbour.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

constexpr int kSpins = 2000;  // some 20 to 80 us, more than lies between two ops of a step
constexpr int kYields = 50;

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  check(n_threads >= 1 && n_threads <= 4096, n_threads, " threads");
  workers_.reserve(static_cast<size_t>(n_threads) - 1);
  for (int worker = 1; worker < n_threads; ++worker) workers_.emplace_back([this, worker] { worker_loop(worker); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
}

void ThreadPool::work(const Job& job, int worker) {
  try {
    for (;;) {
      const int64_t begin = next_.fetch_add(job.grain, std::memory_order_relaxed);
      if (begin >= job.n) return;
      job.call(job.context, begin, std::min(begin + job.grain, job.n), worker);
    }
  } catch (...) {
    next_ = job.n;
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void ThreadPool::run(const Job& job) {
  if (job.n <= 0) return;
  if (workers_.empty() || job.n <= job.grain) {
    job.call(job.context, 0, job.n, 0);
    return;
  }
  job_ = job;
  next_ = 0;
  open_ = true;
  ++n_jobs_;
  if (n_sleeping_ > 0) {
    { const std::lock_guard lock(mutex_); }
    wake_.notify_all();
  }
  work(job, 0);
  // A worker counts itself in active_ before it reads open_, so after this either it is waited for or it sees a closed job.
  open_ = false;
  for (int i = 0; active_ > 0; ++i) {
    i < kSpins ? pause() : std::this_thread::yield();
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

uint64_t ThreadPool::wait_for_job(uint64_t seen) {
  for (int i = 0; i < kSpins + kYields; ++i) {
    if (n_jobs_ != seen || stop_) return n_jobs_;
    i < kSpins ? pause() : std::this_thread::yield();
  }
  std::unique_lock lock(mutex_);
  ++n_sleeping_;
  wake_.wait(lock, [&] { return n_jobs_ != seen || stop_; });
  --n_sleeping_;
  return n_jobs_;
}

void ThreadPool::worker_loop(int worker) {
  uint64_t seen = 0;
  while (!stop_) {
    seen = wait_for_job(seen);
    ++active_;
    if (open_) work(job_, worker);
    --active_;
  }
}

}  // namespace lockstep
