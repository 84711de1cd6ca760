// Threads for loops whose iterations are independent; the caller works too. The iterations are handed out in small runs, so
// which thread does which is left open: a loop must write each output in one iteration and read none of another's. The caller
// never waits for a thread that has not begun to work, so more threads than cores cost little. Idle threads spin briefly, then
// yield, then sleep.
//   ThreadPool pool(4); pool.parallel_for(n, 8, [&](int64_t begin, int64_t end, int worker) { ... });
// One parallel_for at a time, from one thread; worker is in 0 .. n_threads - 1, for scratch space.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);  // the caller included, >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // body(begin, end, worker) over 0 .. n - 1 in runs of `grain`; returns when all are done. The first exception is thrown
  // again.
  template <class Body>
  void parallel_for(int64_t n, int64_t grain, const Body& body) {
    const auto call = [](const void* context, int64_t begin, int64_t end, int worker) {
      (*static_cast<const Body*>(context))(begin, end, worker);
    };
    run({call, &body, n, grain < 1 ? 1 : grain});
  }

 private:
  struct Job {
    void (*call)(const void* context, int64_t begin, int64_t end, int worker) = nullptr;
    const void* context = nullptr;
    int64_t n = 0, grain = 1;
  };
  void run(const Job& job);
  void work(const Job& job, int worker);
  void worker_loop(int worker);
  uint64_t wait_for_job(uint64_t seen);

  Job job_;                          // written only while open_ is false
  std::atomic<bool> open_{false};    // job_ may be joined
  std::atomic<int> active_{0};       // workers that look at job_, or are about to see that it is closed
  std::atomic<int64_t> next_{0};     // first iteration not handed out
  std::atomic<uint64_t> n_jobs_{0};  // counts up, wakes sleepers
  std::atomic<int> n_sleeping_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // of sleeping, and of failure_
  std::condition_variable wake_;
  std::exception_ptr failure_;
  std::vector<std::jthread> workers_;
};

}  // namespace lockstep
