#if defined(__AVX512F__) && defined(__AVX512VL__)
#include "point_kernels.inc"

namespace s3d {
const PointKernels* avx512_point_kernels() { return &kPointKernels; }
}  // namespace s3d
#else
#include "point_kernels.h"

namespace s3d {
const PointKernels* avx512_point_kernels() { return nullptr; }
}  // namespace s3d
#endif
