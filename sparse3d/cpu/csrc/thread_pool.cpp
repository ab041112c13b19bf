#include "thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace s3d {
namespace {

constexpr int32_t kMostWorkers = 255;
constexpr int kTurns = 1000;  // given to others before a caller sleeps: helpers end soon after it

struct Job {
  Job(void (*f)(void*, int64_t), void* c, int64_t items) : body(f), context(c), n(items) {}

  void (*body)(void*, int64_t);
  void* context;
  int64_t n;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  int32_t wanted = 0;              // helpers that may still join; guarded by the pool's mutex
  std::atomic<int32_t> active{0};  // helpers at work; changed under the mutex
  std::condition_variable done;

  void drain() noexcept {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
      try {
        body(context, i);
      } catch (...) {
        failed.store(true, std::memory_order_relaxed);
      }
    }
  }
};

class Pool {
 public:
  void run(int32_t helpers, Job& job) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      grow(helpers);
      job.wanted = std::min(helpers, workers_);
      if (job.wanted > 0) jobs_.push_back(&job);
      offered_.store(!jobs_.empty(), std::memory_order_relaxed);
    }
    for (int32_t i = 0; i < helpers; ++i) wake_.notify_one();
    job.drain();
    std::unique_lock<std::mutex> lock(mutex_);
    const auto it = std::find(jobs_.begin(), jobs_.end(), &job);
    if (it != jobs_.end()) jobs_.erase(it);
    offered_.store(!jobs_.empty(), std::memory_order_relaxed);
    lock.unlock();
    for (int i = 0; i < kTurns && job.active.load(std::memory_order_relaxed) > 0; ++i)
      std::this_thread::yield();
    lock.lock();
    job.done.wait(lock, [&] { return job.active == 0; });
  }

  std::mutex& mutex() { return mutex_; }
  void begin_call() { calls_.fetch_add(1, std::memory_order_relaxed); }
  void end_call() { calls_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  void grow(int32_t helpers) {
    if (workers_ >= std::min(helpers, kMostWorkers)) return;
    // Signals belong to the host's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (; workers_ < std::min(helpers, kMostWorkers); ++workers_)
        std::thread([this] { work(); }).detach();
    } catch (const std::system_error&) {
      // No more threads to be had: the caller works with those there are.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      lock.unlock();
      while (calls_.load(std::memory_order_relaxed) > 0 &&
             !offered_.load(std::memory_order_relaxed))
        std::this_thread::yield();
      lock.lock();
      wake_.wait(lock, [&] { return !jobs_.empty(); });
      Job& job = *jobs_.front();
      if (--job.wanted == 0) jobs_.pop_front();
      offered_.store(!jobs_.empty(), std::memory_order_relaxed);
      ++job.active;
      lock.unlock();
      job.drain();
      lock.lock();
      if (--job.active == 0) job.done.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job*> jobs_;
  int32_t workers_ = 0;
  std::atomic<bool> offered_{false};  // a job waits for helpers
  std::atomic<int32_t> calls_{0};     // of the library, at work
};

// Made when the library is loaded and never destroyed: workers may still sleep in it while the
// process exits. A forked child starts from an empty pool.
alignas(Pool) unsigned char storage[sizeof(Pool)];

Pool& pool() { return *std::launder(reinterpret_cast<Pool*>(storage)); }

const bool made = [] {
  new (storage) Pool;
  pthread_atfork([] { pool().mutex().lock(); }, [] { pool().mutex().unlock(); },
                 [] { new (storage) Pool; });
  return true;
}();

}  // namespace

Awake::Awake() { pool().begin_call(); }
Awake::~Awake() { pool().end_call(); }

void run_items(int32_t threads, int64_t n, void (*body)(void*, int64_t), void* context) {
  if (n <= 0) return;
  const int64_t helpers = std::min<int64_t>(threads, n) - 1;
  if (helpers <= 0) {
    for (int64_t i = 0; i < n; ++i) body(context, i);
    return;
  }
  Job job(body, context, n);
  pool().run(static_cast<int32_t>(helpers), job);
  if (job.failed.load(std::memory_order_relaxed)) throw std::bad_alloc();
}

}  // namespace s3d
