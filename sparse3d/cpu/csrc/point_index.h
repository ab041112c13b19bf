// Points in Hilbert order and the box hierarchy above them.
#pragma once

#include <cstdint>

#include "common.h"
#include "point_kernels.h"

namespace s3d {

// Where points lie on the Hilbert curve: cells of one size on all axes.
struct Frame3 {
  float origin[3];
  float scale[3];
};
Frame3 frame_of(const float* points, int32_t dim, int64_t n);

// order: rows by (Hilbert key, row). keys (may be null): the keys in that order.
void hilbert_order(const PointKernels& kernels, const float* points, int32_t dim, int64_t n,
                   const Frame3& frame, int32_t threads, uint32_t* order, uint64_t* keys);

// A tree that lies in one block of memory, which may be a tensor kept by the caller.
struct Index {
  Tree tree;
  Frame3 frame;
  const uint64_t* leaf_key;
};
int64_t index_bytes(int64_t n);
void index_build(const PointKernels& kernels, const float* points, int32_t dim, int64_t n,
                 int32_t threads, uint8_t* block);
Index index_view(const uint8_t* block, int64_t n);

// A position of the tree close to a point whose Hilbert key is `key`.
uint32_t index_near(const Index& index, uint64_t key);

}  // namespace s3d
