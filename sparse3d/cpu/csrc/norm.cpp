// Batch normalisation in training: column sums over chunks of 512 rows, added in order.
#include <cmath>

#include "abi.h"
#include "half.h"
#include "thread_pool.h"

namespace s3d {
namespace {

constexpr int64_t kRows = 512;

// sums[k] (channels wide) = sum over rows of add(row, sums): chunks in any thread, then in order.
template <class T, class Add>
void column_sums(int32_t threads, int64_t rows, int64_t width, double* total, Add&& add) {
  const int64_t chunks = ceil_div(rows, kRows);
  Buffer<T> partial(chunks * width);
  parallel_for(threads, chunks, [&](int64_t chunk) {
    T* sums = partial.data() + chunk * width;
    std::fill(sums, sums + width, T(0));
    for (int64_t i = chunk * kRows, e = std::min(rows, i + kRows); i < e; ++i) add(i, sums);
  });
  std::fill(total, total + width, 0.0);
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t c = 0; c < width; ++c) total[c] += double(partial[chunk * width + c]);
}

template <class E>
void train(int32_t threads, const E* x, const typename SumType<E>::type* weight,
           const typename SumType<E>::type* bias, int64_t rows, int64_t channels, double eps, E* y,
           typename SumType<E>::type* mean, typename SumType<E>::type* var) {
  using T = typename SumType<E>::type;
  const double count = double(std::max<int64_t>(rows, 1));
  Buffer<double> total(channels);
  column_sums<T>(threads, rows, channels, total.data(), [&](int64_t i, T* sums) {
    for (int64_t c = 0; c < channels; ++c) sums[c] += widen(x[i * channels + c]);
  });
  for (int64_t c = 0; c < channels; ++c) mean[c] = T(total[c] / count);
  column_sums<T>(threads, rows, channels, total.data(), [&](int64_t i, T* sums) {
    for (int64_t c = 0; c < channels; ++c) {
      const T d = widen(x[i * channels + c]) - mean[c];
      sums[c] += d * d;
    }
  });
  Buffer<T> scale(channels), shift(channels);
  for (int64_t c = 0; c < channels; ++c) {
    var[c] = T(total[c] / count);
    scale[c] = T(1 / std::sqrt(double(var[c]) + eps)) * (weight ? weight[c] : T(1));
    shift[c] = bias ? bias[c] : T(0);
  }
  parallel_for(threads, ceil_div(rows, kRows), [&](int64_t chunk) {
    for (int64_t i = chunk * kRows, e = std::min(rows, i + kRows); i < e; ++i)
      for (int64_t c = 0; c < channels; ++c)
        y[i * channels + c] =
            Narrow<E>::from((widen(x[i * channels + c]) - mean[c]) * scale[c] + shift[c]);
  });
}

template <class E>
void gradients(int32_t threads, const E* grad, const E* x, const typename SumType<E>::type* weight,
               const typename SumType<E>::type* mean, const typename SumType<E>::type* var,
               int64_t rows, int64_t channels, double eps, E* dx,
               typename SumType<E>::type* dweight, typename SumType<E>::type* dbias) {
  using T = typename SumType<E>::type;
  const double count = double(std::max<int64_t>(rows, 1));
  Buffer<T> unit(channels);
  for (int64_t c = 0; c < channels; ++c) unit[c] = T(1 / std::sqrt(double(var[c]) + eps));
  Buffer<double> total(2 * channels);
  column_sums<T>(threads, rows, 2 * channels, total.data(), [&](int64_t i, T* sums) {
    for (int64_t c = 0; c < channels; ++c) {
      const T g = widen(grad[i * channels + c]);
      sums[c] += g;
      sums[channels + c] += g * ((widen(x[i * channels + c]) - mean[c]) * unit[c]);
    }
  });
  Buffer<T> offset(channels), slope(channels), factor(channels);
  for (int64_t c = 0; c < channels; ++c) {
    dbias[c] = T(total[c]);
    dweight[c] = T(total[channels + c]);
    offset[c] = T(total[c] / count);
    slope[c] = T(total[channels + c] / count) * unit[c];
    factor[c] = unit[c] * (weight ? weight[c] : T(1));
  }
  parallel_for(threads, ceil_div(rows, kRows), [&](int64_t chunk) {
    for (int64_t i = chunk * kRows, e = std::min(rows, i + kRows); i < e; ++i)
      for (int64_t c = 0; c < channels; ++c) {
        const T d = widen(x[i * channels + c]) - mean[c];
        const T inner = widen(grad[i * channels + c]) - offset[c] - d * slope[c];
        dx[i * channels + c] = Narrow<E>::from(inner * factor[c]);
      }
  });
}

template <class T>
const T* as(const void* p) {
  return static_cast<const T*>(p);
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int32_t s3d_norm_train(int32_t threads, int32_t dtype, const void* x, const void* weight,
                               const void* bias, int64_t rows, int64_t channels, double eps,
                               void* y, void* mean, void* var) {
  return guarded([&] {
    with_dtype(dtype, [&](auto e) {
      using E = typename decltype(e)::type;
      using T = typename SumType<E>::type;
      train(threads, as<E>(x), as<T>(weight), as<T>(bias), rows, channels, eps, static_cast<E*>(y),
            static_cast<T*>(mean), static_cast<T*>(var));
    });
  });
}

S3D_API int32_t s3d_norm_grad(int32_t threads, int32_t dtype, const void* grad, const void* x,
                              const void* weight, const void* mean, const void* var, int64_t rows,
                              int64_t channels, double eps, void* dx, void* dweight, void* dbias) {
  return guarded([&] {
    with_dtype(dtype, [&](auto e) {
      using E = typename decltype(e)::type;
      using T = typename SumType<E>::type;
      gradients(threads, as<E>(grad), as<E>(x), as<T>(weight), as<T>(mean), as<T>(var), rows,
                channels, eps, static_cast<E*>(dx), static_cast<T*>(dweight),
                static_cast<T*>(dbias));
    });
  });
}
