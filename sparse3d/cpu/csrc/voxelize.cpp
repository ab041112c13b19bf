// Points to voxels' corners and back.
#include <cmath>

#include "abi.h"
#include "segment.h"
#include "table.h"

namespace s3d {
namespace {

constexpr int64_t kPoints = 1024;  // of one work item

template <int W, class P>
void trilinear(int32_t threads, const Table<W>& table, const P* points, int64_t n, int32_t* rows,
               P* weights) {
  using T = typename SumType<P>::type;
  constexpr int D = W - 1, kCorners = 1 << D;
  parallel_for(threads, ceil_div(n, kPoints), [&](int64_t i) {
    for (int64_t q = i * kPoints, e = std::min(n, q + kPoints); q < e; ++q) {
      const P* p = points + q * W;
      T fraction[D];
      int64_t cell[D];
      bool inside = true;
      for (int a = 0; a < D; ++a) {
        const T x = widen(p[a + 1]), base = std::floor(x);
        fraction[a] = widen(Narrow<P>::from(x - base));
        inside = inside && base >= T(INT32_MIN) && base < T(2147483648.0);
        cell[a] = inside ? static_cast<int64_t>(base) : 0;
      }
      const T batch = widen(p[0]);
      inside = inside && batch >= T(INT32_MIN) && batch < T(2147483648.0);
      for (int corner = 0; corner < kCorners; ++corner) {
        T weight = 1;
        int32_t key[W] = {inside ? static_cast<int32_t>(batch) : 0};
        bool legal = inside;
        for (int a = 0; a < D; ++a) {
          const int step = corner >> (D - 1 - a) & 1;
          weight *= step ? fraction[a] : widen(Narrow<P>::from(T(1) - fraction[a]));
          const int64_t c = cell[a] + step;
          legal = legal && c <= INT32_MAX;
          key[a + 1] = static_cast<int32_t>(c);
        }
        rows[q * kCorners + corner] = legal ? table.find(key) : -1;
        weights[q * kCorners + corner] = Narrow<P>::from(weight);
      }
    }
  });
}

template <class E, class P>
void interpolate(int32_t threads, const E* x, int64_t channels, const int32_t* rows,
                 const P* weights, int64_t n, int64_t corners, E* y) {
  using T = typename SumType<E>::type;
  parallel_for(threads, ceil_div(n, kPoints), [&](int64_t i) {
    Buffer<T> sums(channels);
    for (int64_t q = i * kPoints, e = std::min(n, q + kPoints); q < e; ++q) {
      std::fill(sums.data(), sums.data() + channels, T(0));
      for (int64_t j = q * corners; j < (q + 1) * corners; ++j) {
        if (rows[j] < 0) continue;
        const E* from = x + int64_t(rows[j]) * channels;
        const T w = static_cast<T>(widen(weights[j]));
        for (int64_t c = 0; c < channels; ++c) sums[c] += widen(from[c]) * w;
      }
      for (int64_t c = 0; c < channels; ++c) y[q * channels + c] = Narrow<E>::from(sums[c]);
    }
  });
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int32_t s3d_trilinear_map(int32_t threads, int32_t dtype, const int32_t* coords, int64_t n,
                                  int32_t ndim, int32_t* table, const void* points, int64_t count,
                                  int32_t* rows, void* weights) {
  return guarded([&] {
    with_width(ndim, [&](auto w) {
      with_dtype(dtype, [&](auto e) {
        using P = typename decltype(e)::type;
        trilinear<w.value, P>(threads, Table<w.value>(coords, n, table),
                              static_cast<const P*>(points), count, rows, static_cast<P*>(weights));
      });
    });
  });
}

S3D_API int32_t s3d_interpolate(int32_t threads, int32_t dtype, int32_t weight_dtype, const void* x,
                                int64_t channels, const int32_t* rows, const void* weights,
                                int64_t n, int64_t corners, void* y) {
  return guarded([&] {
    with_dtype(dtype, [&](auto e) {
      with_dtype(weight_dtype, [&](auto p) {
        using E = typename decltype(e)::type;
        using P = typename decltype(p)::type;
        interpolate(threads, static_cast<const E*>(x), channels, rows,
                    static_cast<const P*>(weights), n, corners, static_cast<E*>(y));
      });
    });
  });
}

S3D_API int32_t s3d_interpolate_grad(int32_t threads, int32_t dtype, int32_t weight_dtype,
                                     const void* grad, int64_t channels, const int32_t* rows,
                                     const void* weights, int64_t n, int64_t corners, int64_t num,
                                     void* dx) {
  return guarded([&] {
    const Segments s = group_by_id(rows, n * corners, num);
    with_dtype(dtype, [&](auto e) {
      with_dtype(weight_dtype, [&](auto p) {
        using E = typename decltype(e)::type;
        using P = typename decltype(p)::type;
        using T = typename SumType<E>::type;
        const E* from = static_cast<const E*>(grad);
        const P* w = static_cast<const P*>(weights);
        sum_segments(threads, s, num, channels, static_cast<E*>(dx), [&](int64_t j, T* sums) {
          const E* row = from + j / corners * channels;
          const T v = static_cast<T>(widen(w[j]));
          for (int64_t c = 0; c < channels; ++c) sums[c] += widen(row[c]) * v;
        });
      });
    });
  });
}
