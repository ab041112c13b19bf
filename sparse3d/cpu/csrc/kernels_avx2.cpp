// AVX2, FMA and F16C: 16 registers of 256 bits.
#include "dispatch.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

#define S3D_MOST_VECTORS 2

namespace s3d {
namespace {

alignas(32) const int32_t kLaneMask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

struct VecF {
  using R = __m256;
  static constexpr int kLanes = 8;
  static __m256i mask(int lanes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kLaneMask + 8 - lanes));
  }
  static R load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, R v) { _mm256_storeu_ps(p, v); }
  static R load_part(const float* p, int lanes) { return _mm256_maskload_ps(p, mask(lanes)); }
  static void store_part(float* p, R v, int lanes) { _mm256_maskstore_ps(p, mask(lanes), v); }
  static R splat(const float* p) { return _mm256_broadcast_ss(p); }
  static R zero() { return _mm256_setzero_ps(); }
  static R fma(R a, R b, R c) { return _mm256_fmadd_ps(a, b, c); }
  static R add(R a, R b) { return _mm256_add_ps(a, b); }
  static R sub(R a, R b) { return _mm256_sub_ps(a, b); }
  static R mul(R a, R b) { return _mm256_mul_ps(a, b); }
  // The second operand wins when one is NaN, so NaN stays.
  static R max0(R v) { return _mm256_max_ps(zero(), v); }
  static R min0(R v) { return _mm256_min_ps(zero(), v); }
  static R keep(R g, R y) { return _mm256_and_ps(_mm256_cmp_ps(y, zero(), _CMP_NLE_UQ), g); }
};

struct VecD {
  using R = __m256d;
  static constexpr int kLanes = 4;
  static __m256i mask(int lanes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kLaneMask + 8 - 2 * lanes));
  }
  static R load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, R v) { _mm256_storeu_pd(p, v); }
  static R load_part(const double* p, int lanes) { return _mm256_maskload_pd(p, mask(lanes)); }
  static void store_part(double* p, R v, int lanes) { _mm256_maskstore_pd(p, mask(lanes), v); }
  static R splat(const double* p) { return _mm256_broadcast_sd(p); }
  static R zero() { return _mm256_setzero_pd(); }
  static R fma(R a, R b, R c) { return _mm256_fmadd_pd(a, b, c); }
  static R add(R a, R b) { return _mm256_add_pd(a, b); }
  static R sub(R a, R b) { return _mm256_sub_pd(a, b); }
  static R mul(R a, R b) { return _mm256_mul_pd(a, b); }
  static R max0(R v) { return _mm256_max_pd(zero(), v); }
  static R min0(R v) { return _mm256_min_pd(zero(), v); }
  static R keep(R g, R y) { return _mm256_and_pd(_mm256_cmp_pd(y, zero(), _CMP_NLE_UQ), g); }
};

constexpr int rows_of(int vectors) { return vectors == 1 ? 12 : 6; }
constexpr int64_t panel_vectors(int64_t vectors) { return vectors < 2 ? 1 : 2; }

inline void widen_lanes(const uint16_t* x, bool half, float* y) {
  for (int i = 0; i < 16; i += 8) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    _mm256_storeu_ps(y + i,
                     half ? _mm256_cvtph_ps(v)
                          : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)));
  }
}

inline __m256i to_bfloat16(__m256 v) {  // in the low half of each lane
  const __m256i u = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
  const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
}

inline void narrow_lanes(const float* x, bool half, uint16_t* y) {
  const __m256 a = _mm256_loadu_ps(x), b = _mm256_loadu_ps(x + 8);
  if (half) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + 8),
                     _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT));
    return;
  }
  const __m256i both = _mm256_packus_epi32(to_bfloat16(a), to_bfloat16(b));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), _mm256_permute4x64_epi64(both, 0xd8));
}

uint32_t maybe16(const uint32_t* a, const uint32_t* b, const uint32_t* filter, int filter_bits) {
  uint32_t live = 0;
  const __m128i line_shift = _mm_cvtsi32_si128(41 - filter_bits);
  for (int i = 0; i < 16; i += 8) {
    const __m256i word =
        _mm256_add_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + i)),
                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + i)));
    const __m256i v = _mm256_srli_epi32(word, 9);
    const __m256i m = _mm256_mullo_epi32(_mm256_xor_si256(v, _mm256_srli_epi32(v, 11)),
                                         _mm256_set1_epi32(0x2C1B3C6D));
    const __m256i cell = _mm256_xor_si256(word, m);
    const __m256i at =
        _mm256_or_si256(_mm256_slli_epi32(_mm256_srl_epi32(m, line_shift), 4),
                        _mm256_and_si256(_mm256_srli_epi32(cell, 5), _mm256_set1_epi32(15)));
    const __m256i w = _mm256_i32gather_epi32(reinterpret_cast<const int*>(filter), at, 4);
    const __m256i bit = _mm256_srlv_epi32(w, _mm256_and_si256(cell, _mm256_set1_epi32(31)));
    live |=
        static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_slli_epi32(bit, 31))))
        << i;
  }
  return live;
}

void compact(const int32_t* row, int64_t n, int32_t first, int32_t* src, int32_t* dst) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + i));
    uint32_t keep = ~static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(v))) & 0xff;
    for (; keep; keep &= keep - 1) {
      const int64_t at = i + __builtin_ctz(keep);
      *src++ = row[at];
      *dst++ = first + static_cast<int32_t>(at);
    }
  }
  for (; i < n; ++i) {
    if (row[i] < 0) continue;
    *src++ = row[i];
    *dst++ = first + static_cast<int32_t>(i);
  }
}

#include "kernels.inc"

}  // namespace

const Kernels* avx2_kernels() { return &kTable; }

}  // namespace s3d
#else
namespace s3d {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace s3d
#endif
