// Arguments of the convolution calls of the C ABI; sparse3d/cpu/_library.py mirrors the structs.
#pragma once

#include <type_traits>

#include "dispatch.h"
#include "half.h"
#include "pairs.h"

namespace s3d {

// y[out] += x[in] @ w[tap], then scale, bias, residual and activation. Channel counts are those of
// one group. Strides count elements; the weight of (group, tap, input k, output n) lies at w +
// group*w_group + tap*w_tap + k*w_in + n*w_out.
struct ConvCall {
  int32_t threads, path, dtype, activation;
  const void *x, *w, *scale, *bias, *residual;  // scale, bias: in the type of the sums
  void* y;
  const int32_t *in, *out;
  const int64_t* splits;
  int64_t ldx, ldy, ldr;
  int64_t w_group, w_tap, w_in, w_out;
  int64_t channels_in, channels_out, groups, taps, num_out;
  int64_t flags, identity;  // of the plan
  double alpha;
};

// dw[group, n, tap, k] = sum over pairs of g[out, n] * x[in, k]; dw contiguous [groups * n, taps,
// k].
struct WeightGradCall {
  int32_t threads, path, dtype, reserved;
  const void *x, *g;
  void* dw;
  const int32_t *in, *out;
  const int64_t* splits;
  const int32_t* sorted;  // `in` or `out`, whichever ascends in every tap, or null
  int64_t ldx, ldg;
  int64_t channels_in, channels_out, groups, taps;
  int64_t sorted_rows;  // of that side
};

template <class T>
const Matmul<T>& matmul_of(const Kernels& k);
template <>
inline const Matmul<float>& matmul_of<float>(const Kernels& k) {
  return k.f32;
}
template <>
inline const Matmul<double>& matmul_of<double>(const Kernels& k) {
  return k.f64;
}

// Rows of a half type as float32, ldt apart: to[i] = from[rows[i]], or from[i].
template <class E>
void widen_rows(const Kernels& kernels, const E* from, int64_t ld, const int32_t* rows, int64_t n,
                int64_t columns, float* to, int64_t ldt) {
  constexpr bool half = std::is_same<E, Float16>::value;
  for (int64_t i = 0; i < n; ++i) {
    if (rows && i + 4 < n) __builtin_prefetch(from + int64_t(rows[i + 4]) * ld);
    kernels.widen(reinterpret_cast<const uint16_t*>(from + (rows ? int64_t(rows[i]) : i) * ld),
                  columns, half, to + i * ldt);
  }
}

}  // namespace s3d
