// What every file of the engine shares: status codes, element types, chunk sizes, scratch memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "thread_pool.h"

// For functions that only prefetch: GCC takes a call of one for a call without effect, and drops
// it.
#define S3D_INLINE inline __attribute__((always_inline))
#define S3D_API extern "C" __attribute__((visibility("default")))

namespace s3d {

// Raised whenever a signature or the meaning of an argument changes; the Python side refuses
// others.
constexpr int32_t kAbiVersion = 4;

enum Status : int32_t { kOk = 0, kOutOfMemory = 1, kBadArgument = 2 };

struct BadArgument {};

enum DType : int32_t { kFloat32 = 0, kFloat64 = 1, kBFloat16 = 2, kFloat16 = 3 };

// Rows of one work item. Fixed: results never depend on the number of threads.
constexpr int64_t kChunk = 4096;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t chunk_count(int64_t n) { return ceil_div(n, kChunk); }

inline int log2_ceil(int64_t n) {
  int bits = 0;
  while ((int64_t(1) << bits) < n) ++bits;
  return bits;
}

// memset and memcpy for sizes that may be 0, when the pointers may be null.
inline void clear_bytes(void* to, int64_t bytes) {
  if (bytes > 0) memset(to, 0, static_cast<size_t>(bytes));
}
inline void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) memcpy(to, from, static_cast<size_t>(bytes));
}

// No exception crosses the C ABI.
template <class F>
int32_t guarded(F&& f) noexcept {
  const Awake awake;
  try {
    f();
    return kOk;
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (...) {
    return kBadArgument;
  }
}

// Page-aligned memory; freed blocks stay with the thread up to a fixed sum, because fresh pages
// cost as much as the work done on them.
void* scratch_take(size_t bytes, size_t* capacity);
void scratch_give(void* block, size_t capacity) noexcept;
// A fresh large output costs a page fault per 4 KB; with huge pages one per 2 MB.
void prefer_huge_pages(void* block, size_t bytes) noexcept;

// An uninitialised array.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t n) : size_(n) {
    if (n > 0)
      data_ = static_cast<T*>(scratch_take(static_cast<size_t>(n) * sizeof(T), &capacity_));
  }
  Buffer(Buffer&& o) noexcept { swap(o); }
  Buffer& operator=(Buffer&& o) noexcept {
    swap(o);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_) scratch_give(data_, capacity_);
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

 private:
  void swap(Buffer& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    std::swap(capacity_, o.capacity_);
  }
  T* data_ = nullptr;
  int64_t size_ = 0;
  size_t capacity_ = 0;
};

// Calls f with Width<2> ... Width<5>: the columns of a coordinate row, batch included.
template <int W>
struct Width {
  static constexpr int value = W;
};
template <class F>
void with_width(int32_t ndim, F&& f) {
  switch (ndim) {
    case 1:
      return f(Width<2>{});
    case 2:
      return f(Width<3>{});
    case 3:
      return f(Width<4>{});
    case 4:
      return f(Width<5>{});
    default:
      throw BadArgument{};
  }
}

}  // namespace s3d
