// Scratch memory: a few freed blocks are kept by each thread.
#include <sys/mman.h>

#include <cstdlib>

#include "common.h"

namespace s3d {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kKeptBytes = size_t(64) << 20;  // of one thread
constexpr int kKeptBlocks = 16;

struct Kept {
  void* block[kKeptBlocks] = {};
  size_t capacity[kKeptBlocks] = {};
  size_t bytes = 0;
  ~Kept() {
    for (void* b : block) free(b);
  }
};
thread_local Kept kept;

}  // namespace

void prefer_huge_pages(void* block, size_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kHuge = uintptr_t(2) << 20;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(block) + kHuge - 1) & ~(kHuge - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(block) + bytes) & ~(kHuge - 1);
  if (bytes >= 4 * kHuge && begin < end)
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)block;
  (void)bytes;
#endif
}

void* scratch_take(size_t bytes, size_t* capacity) {
  int best = -1;
  for (int i = 0; i < kKeptBlocks; ++i) {
    if (!kept.block[i] || kept.capacity[i] < bytes || kept.capacity[i] > 4 * bytes + 16 * kPage)
      continue;
    if (best < 0 || kept.capacity[i] < kept.capacity[best]) best = i;
  }
  if (best >= 0) {
    void* found = kept.block[best];
    *capacity = kept.capacity[best];
    kept.block[best] = nullptr;
    kept.bytes -= *capacity;
    return found;
  }
  if (bytes > SIZE_MAX - kPage) throw std::bad_alloc();
  const size_t rounded = (bytes + kPage - 1) & ~(kPage - 1);
  void* fresh = nullptr;
  if (posix_memalign(&fresh, kPage, rounded) != 0) throw std::bad_alloc();
  prefer_huge_pages(fresh, rounded);
  *capacity = rounded;
  return fresh;
}

void scratch_give(void* block, size_t capacity) noexcept {
  if (kept.bytes + capacity <= kKeptBytes) {
    for (int i = 0; i < kKeptBlocks; ++i) {
      if (kept.block[i]) continue;
      kept.block[i] = block;
      kept.capacity[i] = capacity;
      kept.bytes += capacity;
      return;
    }
  }
  free(block);
}

}  // namespace s3d
