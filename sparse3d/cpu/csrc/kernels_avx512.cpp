// AVX-512 (F, BW, DQ, VL): 32 registers of 512 bits.
#include "dispatch.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include <immintrin.h>

#define S3D_MOST_VECTORS 4

namespace s3d {
namespace {

struct VecF {
  using R = __m512;
  static constexpr int kLanes = 16;
  static __mmask16 mask(int lanes) { return static_cast<__mmask16>((1u << lanes) - 1); }
  static R load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, R v) { _mm512_storeu_ps(p, v); }
  static R load_part(const float* p, int lanes) { return _mm512_maskz_loadu_ps(mask(lanes), p); }
  static void store_part(float* p, R v, int lanes) { _mm512_mask_storeu_ps(p, mask(lanes), v); }
  static R splat(const float* p) { return _mm512_set1_ps(*p); }
  static R zero() { return _mm512_setzero_ps(); }
  static R fma(R a, R b, R c) { return _mm512_fmadd_ps(a, b, c); }
  static R add(R a, R b) { return _mm512_add_ps(a, b); }
  static R sub(R a, R b) { return _mm512_sub_ps(a, b); }
  static R mul(R a, R b) { return _mm512_mul_ps(a, b); }
  // The second operand wins when one is NaN, so NaN stays.
  static R max0(R v) { return _mm512_max_ps(zero(), v); }
  static R min0(R v) { return _mm512_min_ps(zero(), v); }
  static R keep(R g, R y) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, zero(), _CMP_NLE_UQ), g);
  }
};

struct VecD {
  using R = __m512d;
  static constexpr int kLanes = 8;
  static __mmask8 mask(int lanes) { return static_cast<__mmask8>((1u << lanes) - 1); }
  static R load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, R v) { _mm512_storeu_pd(p, v); }
  static R load_part(const double* p, int lanes) { return _mm512_maskz_loadu_pd(mask(lanes), p); }
  static void store_part(double* p, R v, int lanes) { _mm512_mask_storeu_pd(p, mask(lanes), v); }
  static R splat(const double* p) { return _mm512_set1_pd(*p); }
  static R zero() { return _mm512_setzero_pd(); }
  static R fma(R a, R b, R c) { return _mm512_fmadd_pd(a, b, c); }
  static R add(R a, R b) { return _mm512_add_pd(a, b); }
  static R sub(R a, R b) { return _mm512_sub_pd(a, b); }
  static R mul(R a, R b) { return _mm512_mul_pd(a, b); }
  static R max0(R v) { return _mm512_max_pd(zero(), v); }
  static R min0(R v) { return _mm512_min_pd(zero(), v); }
  static R keep(R g, R y) {
    return _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(y, zero(), _CMP_NLE_UQ), g);
  }
};

constexpr int rows_of(int vectors) { return vectors == 4 ? 6 : vectors == 3 ? 8 : 12; }
constexpr int64_t panel_vectors(int64_t v) {
  return v % 4 == 0 ? 4 : v % 3 == 0 ? 3 : v == 2 ? 2 : v < 2 ? 1 : v % 2 == 0 && v < 8 ? 2 : 4;
}

inline void widen_lanes(const uint16_t* x, bool half, float* y) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  _mm512_storeu_ps(y, half ? _mm512_cvtph_ps(v)
                           : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16)));
}

inline void narrow_lanes(const float* x, bool half, uint16_t* y) {
  const __m512 v = _mm512_loadu_ps(x);
  if (half) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    return;
  }
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y),
                      _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet)));
}

uint32_t maybe16(const uint32_t* a, const uint32_t* b, const uint32_t* filter, int filter_bits) {
  const __m512i word = _mm512_add_epi32(_mm512_loadu_si512(a), _mm512_loadu_si512(b));
  const __m512i v = _mm512_srli_epi32(word, 9);
  const __m512i m = _mm512_mullo_epi32(_mm512_xor_si512(v, _mm512_srli_epi32(v, 11)),
                                       _mm512_set1_epi32(0x2C1B3C6D));
  const __m512i line = _mm512_srl_epi32(m, _mm_cvtsi32_si128(41 - filter_bits));
  const __m512i cell = _mm512_xor_si512(word, m);
  const __m512i at =
      _mm512_or_si512(_mm512_slli_epi32(line, 4),
                      _mm512_and_si512(_mm512_srli_epi32(cell, 5), _mm512_set1_epi32(15)));
  const __m512i w = _mm512_i32gather_epi32(at, filter, 4);
  return _mm512_test_epi32_mask(
      w, _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_and_si512(cell, _mm512_set1_epi32(31))));
}

void compact(const int32_t* row, int64_t n, int32_t first, int32_t* src, int32_t* dst) {
  int64_t i = 0;
  const __m512i steps = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  for (; i + 16 <= n; i += 16) {
    const __m512i v = _mm512_loadu_si512(row + i);
    const __mmask16 keep = static_cast<__mmask16>(~_mm512_movepi32_mask(v));
    if (!keep) continue;
    _mm512_mask_compressstoreu_epi32(src, keep, v);
    _mm512_mask_compressstoreu_epi32(
        dst, keep, _mm512_add_epi32(_mm512_set1_epi32(first + static_cast<int32_t>(i)), steps));
    const int kept = __builtin_popcount(keep);
    src += kept;
    dst += kept;
  }
  for (; i < n; ++i) {
    if (row[i] < 0) continue;
    *src++ = row[i];
    *dst++ = first + static_cast<int32_t>(i);
  }
}

#include "kernels.inc"

}  // namespace

const Kernels* avx512_kernels() { return &kTable; }

}  // namespace s3d
#else
namespace s3d {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace s3d
#endif
