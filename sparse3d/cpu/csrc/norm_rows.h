// Batch norm in training, some rows at a time: declarations alone, see dispatch.h.
#pragma once

#include <cstdint>

namespace s3d {

// Rows lie one after the other. The norm of a row is (x - mean) * scale + shift.
template <class T>
struct NormRows {
  int64_t rows, columns;
  const T *x, *grad;
  const T *mean, *scale, *shift;
  const T* side;                     // `apply` adds it, gradients are masked by it; may be null
  bool relu;                         // without a side, gradients are masked by the norm itself
  T* y;                              // of grad_sums: the masked gradient, or null
  T *first, *second;                 // sums, written
  const T *offset, *slope, *factor;  // of grad_apply
};

template <class T>
struct NormKernels {
  void (*sum)(const NormRows<T>&);         // first = sum of x
  void (*centred)(const NormRows<T>&);     // first, second = sums of d and d * d, d = x - mean
  void (*apply)(const NormRows<T>&);       // y = relu(norm + side)
  void (*grad_sums)(const NormRows<T>&);   // first, second = sums of g and g * d
  void (*grad_apply)(const NormRows<T>&);  // y = (g - offset - d * slope) * factor
};

}  // namespace s3d
