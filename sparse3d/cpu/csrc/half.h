// Scalar bfloat16 and float16, and the type in which each element type is summed.
#pragma once

#include <cstdint>
#include <cstring>

#include "common.h"

namespace s3d {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

inline uint32_t float_bits(float v) {
  uint32_t u;
  memcpy(&u, &v, 4);
  return u;
}
inline float bits_float(uint32_t u) {
  float v;
  memcpy(&v, &u, 4);
  return v;
}

inline float widen(float v) { return v; }
inline double widen(double v) { return v; }
inline float widen(BFloat16 v) { return bits_float(uint32_t(v.bits) << 16); }
inline float widen(Float16 v) {
  const uint32_t sign = uint32_t(v.bits & 0x8000) << 16, rest = uint32_t(v.bits & 0x7fff) << 13;
  if ((rest & 0x0f800000) == 0x0f800000) return bits_float(sign | rest | 0x7f800000);  // inf, nan
  // Scaling by 2^112 moves the exponent bias and turns subnormal halves into normal floats.
  return bits_float(sign | float_bits(bits_float(rest) * bits_float(0x77800000)));
}

// Round to nearest, ties to even.
template <class E>
struct Narrow;
template <>
struct Narrow<float> {
  static float from(float v) { return v; }
};
template <>
struct Narrow<double> {
  static double from(double v) { return v; }
};
template <>
struct Narrow<BFloat16> {
  static BFloat16 from(float v) {
    const uint32_t u = float_bits(v);
    if ((u & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>((u >> 16) | 0x40)};
    return {static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
  }
};
template <>
struct Narrow<Float16> {
  static Float16 from(float v) {
    const uint32_t u = float_bits(v), sign = (u >> 16) & 0x8000;
    const uint32_t a = u & 0x7fffffff;
    if (a > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00 | ((a >> 13) & 0x3ff))};
    if (a >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)};  // rounds past 65504
    if (a < 0x38800000) {  // subnormal: adding 0.5 lets the float unit round at the right bit
      const uint32_t m = float_bits(bits_float(a) + 0.5f) - 0x3f000000;
      return {static_cast<uint16_t>(sign | m)};
    }
    return {static_cast<uint16_t>(sign | ((a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13))};
  }
};

template <class E>
struct SumType {
  using type = float;
};
template <>
struct SumType<double> {
  using type = double;
};

template <class E>
struct Element {
  using type = E;
};
template <class F>
void with_dtype(int32_t dtype, F&& f) {
  switch (dtype) {
    case kFloat32:
      return f(Element<float>{});
    case kFloat64:
      return f(Element<double>{});
    case kBFloat16:
      return f(Element<BFloat16>{});
    case kFloat16:
      return f(Element<Float16>{});
    default:
      throw BadArgument{};
  }
}
inline int64_t element_size(int32_t dtype) {
  return dtype == kFloat64 ? 8 : dtype == kFloat32 ? 4 : 2;
}

}  // namespace s3d
