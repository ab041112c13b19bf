// The baseline of the target: what runs where nothing better does, and what the others are tested
// by.
#include "dispatch.h"
#include "half.h"

#define S3D_MOST_VECTORS 2

namespace s3d {
namespace {

typedef float Float4 __attribute__((vector_size(16)));
typedef double Double2 __attribute__((vector_size(16)));

template <class R>
inline R multiply_add(R a, R b, R c) {
  return a * b + c;
}

#include "kernels_vector.inc"

constexpr int rows_of(int vectors) { return vectors == 1 ? 12 : 6; }
constexpr int64_t panel_vectors(int64_t vectors) { return vectors < 2 ? 1 : 2; }

inline void widen_lanes(const uint16_t* x, bool half, float* y) {
  for (int i = 0; i < 16; ++i) y[i] = half ? s3d::widen(Float16{x[i]}) : s3d::widen(BFloat16{x[i]});
}
inline void narrow_lanes(const float* x, bool half, uint16_t* y) {
  for (int i = 0; i < 16; ++i)
    y[i] = half ? Narrow<Float16>::from(x[i]).bits : Narrow<BFloat16>::from(x[i]).bits;
}

#include "kernels.inc"

}  // namespace

const Kernels* portable_kernels() { return &kTable; }

}  // namespace s3d
