// The kernels that exist once per instruction set. This header is seen by files compiled for other
// instruction sets, so it holds declarations only: an inline function emitted there could be the
// copy that the linker keeps for everyone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "norm_rows.h"

namespace s3d {

enum Path : int32_t {
  kAuto = 0,
  kPortable = 1,
  kAvx2 = 2,
  kAvx512 = 3,
  kAmx = 4,
  kNeon = 5,
  kAvx512Bf16 = 6
};
enum Activation : int32_t { kNone = 0, kRelu = 1, kLeakyRelu = 2, kSigmoid = 3 };

// y[dst[p] - base, :] (+)= x[src[p], :] @ w for p in [0, n). Weights are panels of `panel`
// columns, each [k][panel], zero beyond the last column. Pairs of equal dst are added in order.
template <class T>
struct Multiply {
  const T* x;
  int64_t ldx;
  const int32_t* src;  // null: rows 0, 1, ...
  T* y;
  int64_t ldy;
  const int32_t* dst;  // null: rows 0, 1, ...
  int64_t base;
  int64_t n;
  const T* w;
  int64_t k;
  int64_t columns;
  int64_t panel;
  bool store;  // instead of adding
};

// Rows to fetch into the second cache while a product runs: lines [0, lines) of each row, as many
// on each side as it is wide.
struct Ahead {
  const char* base[2];
  int64_t row_bytes[2], lines[2];
  const int32_t* rows[2];
  int64_t n;
};

// out[i, j] (+)= sum over p of left[left_rows[p], i] * right[right_rows[p], j]. Right rows are
// readable up to the next multiple of `lanes` columns.
template <class T>
struct Outer {
  const T* left;
  const T* right;
  int64_t ldl, ldr;
  const int32_t* left_rows;  // both null: rows 0, 1, ...
  const int32_t* right_rows;
  int64_t n, rows, columns;
  T* out;
  int64_t ldo;
  bool store;          // instead of adding
  const Ahead* ahead;  // may be null
};

// y = activation(y * scale + bias + residual) in place; each of the three may be null.
template <class T>
struct Finish {
  T* y;
  int64_t ldy, rows, columns;
  const T* scale;
  const T* bias;
  const T* residual;
  int64_t ldr;
  int32_t activation;
  T alpha;
};

// y = activation(sums * scale + bias + residual) in a half type, one rounding.
struct FinishHalf {
  const float* sums;
  int64_t lds, rows, columns;
  const float* scale;
  const float* bias;
  const uint16_t* residual;
  int64_t ldr;
  uint16_t* y;
  int64_t ldy;
  bool half;  // else bfloat16
  int32_t activation;
  float alpha;
};

template <class T>
struct Matmul {
  int64_t (*panel)(int64_t columns);
  void (*multiply)(const Multiply<T>&);
  int64_t lanes;  // of a vector
  // Copies rows to `to`, ldt apart, zero beyond the last column up to a whole vector.
  void (*gather)(const T* x, int64_t ldx, const int32_t* rows, int64_t n, int64_t columns, T* to,
                 int64_t ldt);
  void (*outer)(const Outer<T>&);
  void (*finish)(const Finish<T>&);
};

// How a coordinate's key is made (see table.h: key_of); the batch is axis 0, whose shift is 0.
struct KeyForm {
  static constexpr int kCount = 64;  // keys made together
  int width, bits;
  int shift[5];
  uint32_t factor[5], tag_mask;
};

struct Kernels {
  Matmul<float> f32;
  Matmul<double> f64;
  // bfloat16 (half = false) or float16 (half = true) to float32 and back, to nearest even.
  void (*widen)(const uint16_t* x, int64_t n, bool half, float* y);
  void (*narrow)(const float* x, int64_t n, bool half, uint16_t* y);
  void (*finish_half)(const FinishHalf&);
  // Shares of 16 coordinates c + offset in their filter words (see table.h: line_share).
  void (*shares16)(const uint32_t* c, uint32_t offset, uint32_t factor, int shift, int place,
                   uint32_t* shares);
  // The set of those of 16 filter words a + b that a bit filter lets pass.
  uint32_t (*maybe16)(const uint32_t* a, const uint32_t* b, const uint32_t* filter,
                      int filter_bits);
  // Keys of KeyForm::kCount coordinates, site[axis][position].
  void (*keys)(const int32_t (*site)[KeyForm::kCount], const KeyForm& form, uint32_t* home,
               uint32_t* tag);
  // Keeps the non-negative ones of n entries as (src, dst = first + position).
  void (*compact)(const int32_t* row, int64_t n, int32_t first, int32_t* src, int32_t* dst);
  NormKernels<float> norm32;
  NormKernels<double> norm64;
};

// sum[dst[p] - base, :] (+)= x[p, :] @ w in bfloat16, sums in float32. Rows of x are readable up to
// the next multiple of 32; weights are [columns / 32][k / 32][2 column halves][16 pairs of k][16
// columns][2].
struct Bf16Multiply {
  const uint16_t* x;
  int64_t ldx;
  const uint16_t* w;
  int64_t k, columns;  // both rounded up to 32
  const int32_t* dst;  // null: rows 0, 1, ...
  int64_t base;
  int64_t n;
  float* sum;
  int64_t lds;
  bool store;
};
struct Bf16Kernels {
  bool (*permit)();  // asks the system for registers that it grants on request
  // One tap's weight, of element (k, n) at w[k * w_in + n * w_out], as `multiply` reads it.
  void (*pack)(const uint16_t* w, int64_t w_in, int64_t w_out, int64_t k, int64_t n, uint16_t* to);
  // Rows (null: 0, 1, ...) of k channels one after the other, ldt apart.
  void (*gather)(const uint16_t* x, int64_t ldx, const int32_t* rows, int64_t n, int64_t k,
                 int64_t ldt, uint16_t* to);
  void (*multiply)(const Bf16Multiply&);
  void (*enter)(void* saved);  // keeps what the thread has set up, 64 bytes
  void (*leave)(const void* saved);
};

// Null where the compiler or the target lacks the instruction set.
const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
const Kernels* neon_kernels();
const Bf16Kernels* avx512bf16_kernels();
const Bf16Kernels* amx_kernels();

// The path that a request stands for on this machine; a path it lacks throws BadArgument.
int32_t resolve_path(int32_t path);
const Kernels& kernels_of(int32_t resolved);
const Bf16Kernels* bf16_kernels_of(int32_t resolved);  // null: products in float32

}  // namespace s3d
