// Pooling over a kernel map: a tile of output rows is a sub-range of every tap, taken in ascending
// order.
#include "abi.h"
#include "half.h"
#include "pairs.h"

namespace s3d {
namespace {

constexpr int64_t kTile = 1024;   // output rows
constexpr int64_t kColumns = 16;  // of one work item of the gradient

template <class E>
using Sum = typename SumType<E>::type;

struct Pairs {
  const int32_t *src, *dst;
  const int64_t* splits;
  int64_t taps;
};

template <class E>
void pool_sum(int32_t threads, const E* x, int64_t channels, const Pairs& m, int64_t rows_out,
              E* y) {
  using T = Sum<E>;
  parallel_for(threads, ceil_div(rows_out, kTile), [&](int64_t i) {
    const int64_t row0 = i * kTile, row1 = std::min(rows_out, row0 + kTile),
                  size = (row1 - row0) * channels;
    Buffer<T> scratch(std::is_same<E, T>::value ? 0 : size);
    T* sums;
    if constexpr (std::is_same<E, T>::value)
      sums = y + row0 * channels;
    else
      sums = scratch.data();
    std::fill(sums, sums + size, T(0));
    for (int64_t t = 0; t < m.taps; ++t) {
      const Range r = tile_range(m.dst, m.splits, t, row0, row1);
      for (int64_t p = r.begin; p < r.end; ++p) {
        const E* from = x + int64_t(m.src[p]) * channels;
        T* to = sums + (m.dst[p] - row0) * channels;
        for (int64_t c = 0; c < channels; ++c) to[c] += widen(from[c]);
      }
    }
    if constexpr (!std::is_same<E, T>::value)
      for (int64_t k = 0; k < size; ++k) y[row0 * channels + k] = Narrow<E>::from(sums[k]);
  });
}

template <class E>
void pool_max(int32_t threads, const E* x, int64_t channels, const Pairs& m, int64_t rows_out, E* y,
              int32_t* arg) {
  using T = Sum<E>;
  parallel_for(threads, ceil_div(rows_out, kTile), [&](int64_t i) {
    const int64_t row0 = i * kTile, row1 = std::min(rows_out, row0 + kTile),
                  size = (row1 - row0) * channels;
    Buffer<T> best(size);
    std::fill(best.data(), best.data() + size, T(0));
    int32_t* owner = arg + row0 * channels;
    std::fill(owner, owner + size, -1);
    for (int64_t t = 0; t < m.taps; ++t) {
      const Range r = tile_range(m.dst, m.splits, t, row0, row1);
      for (int64_t p = r.begin; p < r.end; ++p) {
        const E* from = x + int64_t(m.src[p]) * channels;
        T* b = best.data() + (m.dst[p] - row0) * channels;
        int32_t* o = owner + (m.dst[p] - row0) * channels;
        for (int64_t c = 0; c < channels; ++c) {
          const T v = widen(from[c]);
          const bool wins = (o[c] < 0) | (v > b[c]) | ((v != v) & (b[c] == b[c]));
          b[c] = wins ? v : b[c];
          o[c] = wins ? m.src[p] : o[c];
        }
      }
    }
    for (int64_t k = 0; k < size; ++k) y[row0 * channels + k] = Narrow<E>::from(best[k]);
  });
}

// dx[arg[q, c], c] += grad[q, c], q ascending: columns are independent.
template <class E>
void pool_max_grad(int32_t threads, const E* grad, const int32_t* arg, int64_t rows_out,
                   int64_t channels, int64_t rows_in, E* dx) {
  using T = Sum<E>;
  parallel_for(threads, ceil_div(channels, kColumns), [&](int64_t i) {
    const int64_t c0 = i * kColumns, width = std::min(kColumns, channels - c0);
    Buffer<T> sums(rows_in * width);
    std::fill(sums.data(), sums.data() + sums.size(), T(0));
    for (int64_t q = 0; q < rows_out; ++q) {
      const int32_t* a = arg + q * channels + c0;
      const E* g = grad + q * channels + c0;
      for (int64_t c = 0; c < width; ++c)
        if (a[c] >= 0 && a[c] < rows_in) sums[a[c] * width + c] += widen(g[c]);
    }
    for (int64_t p = 0; p < rows_in; ++p)
      for (int64_t c = 0; c < width; ++c)
        dx[p * channels + c0 + c] = Narrow<E>::from(sums[p * width + c]);
  });
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int32_t s3d_pool_sum(int32_t threads, int32_t dtype, const void* x, int64_t channels,
                             const int32_t* src, const int32_t* dst, const int64_t* splits,
                             int64_t taps, int64_t rows_out, void* y) {
  return guarded([&] {
    with_dtype(dtype, [&](auto e) {
      using E = typename decltype(e)::type;
      pool_sum(threads, static_cast<const E*>(x), channels, {src, dst, splits, taps}, rows_out,
               static_cast<E*>(y));
    });
  });
}

S3D_API int32_t s3d_pool_max(int32_t threads, int32_t dtype, const void* x, int64_t channels,
                             const int32_t* src, const int32_t* dst, const int64_t* splits,
                             int64_t taps, int64_t rows_out, void* y, int32_t* arg) {
  return guarded([&] {
    with_dtype(dtype, [&](auto e) {
      using E = typename decltype(e)::type;
      pool_max(threads, static_cast<const E*>(x), channels, {src, dst, splits, taps}, rows_out,
               static_cast<E*>(y), arg);
    });
  });
}

S3D_API int32_t s3d_pool_max_grad(int32_t threads, int32_t dtype, const void* grad,
                                  const int32_t* arg, int64_t rows_out, int64_t channels,
                                  int64_t rows_in, void* dx) {
  return guarded([&] {
    with_dtype(dtype, [&](auto e) {
      using E = typename decltype(e)::type;
      pool_max_grad(threads, static_cast<const E*>(grad), arg, rows_out, channels, rows_in,
                    static_cast<E*>(dx));
    });
  });
}
