#include "point_kernels.inc"

namespace s3d {
const PointKernels* portable_point_kernels() { return &kPointKernels; }
}  // namespace s3d
