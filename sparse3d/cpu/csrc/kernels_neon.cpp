// 64-bit Arm: 32 registers of 128 bits, fused multiply-add and half precision conversions in the
// baseline.
#include "dispatch.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define S3D_MOST_VECTORS 4

namespace s3d {
namespace {

typedef float32x4_t Float4;
typedef float64x2_t Double2;

inline Float4 multiply_add(Float4 a, Float4 b, Float4 c) { return vfmaq_f32(c, a, b); }
inline Double2 multiply_add(Double2 a, Double2 b, Double2 c) { return vfmaq_f64(c, a, b); }

#include "kernels_vector.inc"

constexpr int rows_of(int vectors) { return vectors == 4 ? 6 : vectors == 3 ? 8 : 12; }
constexpr int64_t panel_vectors(int64_t v) {
  return v % 4 == 0 ? 4 : v % 3 == 0 ? 3 : v == 2 ? 2 : v < 2 ? 1 : v % 2 == 0 && v < 8 ? 2 : 4;
}

inline void widen_lanes(const uint16_t* x, bool half, float* y) {
  for (int i = 0; i < 16; i += 4) {
    const uint16x4_t v = vld1_u16(x + i);
    vst1q_f32(y + i, half ? vcvt_f32_f16(vreinterpret_f16_u16(v))
                          : vreinterpretq_f32_u32(vshll_n_u16(v, 16)));
  }
}

inline void narrow_lanes(const float* x, bool half, uint16_t* y) {
  for (int i = 0; i < 16; i += 4) {
    const float32x4_t v = vld1q_f32(x + i);
    if (half) {
      vst1_u16(y + i, vreinterpret_u16_f16(vcvt_f16_f32(v)));
      continue;
    }
    const uint32x4_t u = vreinterpretq_u32_f32(v), top = vshrq_n_u32(u, 16);
    const uint32x4_t odd = vandq_u32(top, vdupq_n_u32(1));
    const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd), 16);
    const uint32x4_t number = vceqq_f32(v, v);
    vst1_u16(y + i, vmovn_u32(vbslq_u32(number, rounded, vorrq_u32(top, vdupq_n_u32(0x40)))));
  }
}

#include "kernels.inc"

}  // namespace

const Kernels* neon_kernels() { return &kTable; }

}  // namespace s3d
#else
namespace s3d {
const Kernels* neon_kernels() { return nullptr; }
}  // namespace s3d
#endif
