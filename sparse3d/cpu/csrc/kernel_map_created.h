// Kernel maps that create their output rows: footprint, generative, floor.
#pragma once

#include "kernel_map.h"

namespace s3d {

template <int W>
void build_footprint(int32_t threads, const int32_t* coords, int64_t n, const Geometry& g,
                     const int64_t* shape, bool transposed, MapBuild& map);

template <int W>
void build_floor(int32_t threads, const Kernels& kernels, const Table<W>& table, const Geometry& g,
                 MapBuild& map);

}  // namespace s3d
