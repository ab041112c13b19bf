// bfloat16 products by AVX-512's own instruction with float32 sums, for processors without AMX:
// blocks of 12 rows and 32 columns in registers.
#include "dispatch.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#include <immintrin.h>

#include <cstring>

namespace s3d {
namespace {

#include "kernels_bf16.inc"

constexpr int64_t kRows = 12;

__m512bh pair_of(const uint16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}

// Rows p ... p + R of a block of 32 columns from o on.
template <int R, bool kStore>
inline void multiply_block(const Bf16Multiply& j, int64_t p, int64_t o) {
  __m512 sum[R][2];
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  const uint16_t *x = j.x + p * j.ldx, *w = j.w + o * j.k;
  for (int64_t k = 0; k < j.k; k += 32, w += 1024)
    for (int64_t a = 0; a < 16; ++a) {
      const auto left = (__m512bh)_mm512_loadu_si512(w + a * 32),
                 right = (__m512bh)_mm512_loadu_si512(w + 512 + a * 32);
      for (int r = 0; r < R; ++r) {
        const __m512bh pair = pair_of(x + r * j.ldx + k + 2 * a);
        sum[r][0] = _mm512_dpbf16_ps(sum[r][0], left, pair);
        sum[r][1] = _mm512_dpbf16_ps(sum[r][1], right, pair);
      }
    }
  for (int r = 0; r < R; ++r) {
    const int64_t row = j.dst ? static_cast<int64_t>(j.dst[p + r]) - j.base : p + r;
    float* s = j.sum + row * j.lds + o;
    if (!kStore) {
      sum[r][0] = _mm512_add_ps(sum[r][0], _mm512_loadu_ps(s));
      sum[r][1] = _mm512_add_ps(sum[r][1], _mm512_loadu_ps(s + 16));
    }
    _mm512_storeu_ps(s, sum[r][0]);
    _mm512_storeu_ps(s + 16, sum[r][1]);
  }
}

template <bool kStore>
void multiply_rows(const Bf16Multiply& j) {
  for (int64_t o = 0; o < j.columns; o += 32) {
    int64_t p = 0;
    for (; p + kRows <= j.n; p += kRows) multiply_block<kRows, kStore>(j, p, o);
    for (; p + 4 <= j.n; p += 4) multiply_block<4, kStore>(j, p, o);
    for (; p < j.n; ++p) multiply_block<1, kStore>(j, p, o);
  }
}

void multiply(const Bf16Multiply& j) {
  if (j.store)
    multiply_rows<true>(j);
  else
    multiply_rows<false>(j);
}

bool permit() { return true; }
void enter(void*) {}
void leave(const void*) {}

constexpr Bf16Kernels kTable = {permit, pack, gather, multiply, enter, leave};

}  // namespace

const Bf16Kernels* avx512bf16_kernels() { return &kTable; }

}  // namespace s3d
#else
namespace s3d {
const Bf16Kernels* avx512bf16_kernels() { return nullptr; }
}  // namespace s3d
#endif
