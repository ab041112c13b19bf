// Arguments of the batch norm calls of the C ABI; sparse3d/cpu/_library.py mirrors the struct.
#pragma once

#include <cstdint>

namespace s3d {

// weight, bias (or null), mean, var and their gradients are in the type of the sums. In training
// y = relu(norm(x) + side) and mean, var are written; of the gradient y is dx, side the output
// that training gave (null where it added no side, then the norm is made again to mask by).
struct NormCall {
  int32_t threads, path, dtype, relu;
  const void *x, *weight, *bias, *side, *grad;
  void *y, *mean, *var, *dweight, *dbias, *dside;
  int64_t rows, channels;
  double eps;
};

}  // namespace s3d
