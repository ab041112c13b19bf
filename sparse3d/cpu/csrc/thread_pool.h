// One pool for the process. Workers sleep on a condition variable, are made when first needed, and
// are forgotten by a forked child, which makes its own.
#pragma once

#include <cstdint>

namespace s3d {

// While one lives, workers that have finished a job wait for the next of the call without going to
// sleep, giving way to whoever else wants the processor: an operator of ten short steps would spend
// as long again waking them.
class Awake {
 public:
  Awake();
  ~Awake();
  Awake(const Awake&) = delete;
  Awake& operator=(const Awake&) = delete;
};

// Runs body(context, i) for every i in [0, n) on at most `threads` threads, the caller included.
// Items are claimed one by one: a result must never depend on which thread ran an item.
void run_items(int32_t threads, int64_t n, void (*body)(void*, int64_t), void* context);

template <class F>
void parallel_for(int32_t threads, int64_t n, const F& body) {
  run_items(
      threads, n, [](void* f, int64_t i) { (*static_cast<const F*>(f))(i); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace s3d
