#if defined(__AVX2__) && defined(__FMA__)
#include "point_kernels.inc"

namespace s3d {
const PointKernels* avx2_point_kernels() { return &kPointKernels; }
}  // namespace s3d
#else
#include "point_kernels.h"

namespace s3d {
const PointKernels* avx2_point_kernels() { return nullptr; }
}  // namespace s3d
#endif
