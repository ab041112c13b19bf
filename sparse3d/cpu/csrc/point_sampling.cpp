// Farthest point sampling: one cloud a thread, positions in Hilbert order so that boxes prune.
#include <vector>

#include "common.h"
#include "point_index.h"
#include "point_kernels.h"
#include "thread_pool.h"

namespace s3d {
namespace {

// Rows of the table: first and last row, the range of the output, the row to start from, the base.
struct Cloud {
  int64_t first, last, begin, end, start, base;
};

constexpr int64_t kOrderedPoints = 512;  // below it boxes do not pay for the sort

// The bits of a slot number in reverse order; slots is a power of two.
int64_t reversed(int64_t slot, int64_t slots) {
  int64_t out = 0;
  for (; slots > 1; slots /= 2, slot /= 2) out = out * 2 + slot % 2;
  return out;
}

template <class T>
struct Widened {  // the points as float32, for the order only
  static const float* of(const T* points, int64_t n, Buffer<float>& room) {
    room = Buffer<float>(n);
    for (int64_t i = 0; i < n; ++i) room[i] = static_cast<float>(points[i]);
    return room.data();
  }
};
template <>
struct Widened<float> {
  static const float* of(const float* points, int64_t, Buffer<float>&) { return points; }
};

template <class T>
void sample(const T* points, int32_t dim, const Cloud& cloud, bool stay, bool skip, int64_t slots,
            const PointKernels& kernels, void (*run)(const FpsJob<T>&), int32_t threads,
            int64_t* taken) {
  const int64_t n = cloud.last - cloud.first, count = cloud.end - cloud.begin;
  if (count == 0) return;
  const T* mine = points + cloud.first * dim;
  const int64_t padded = ceil_div(n, kBucket * kLane) * kBucket * kLane;
  const bool boxes = dim <= 3 && n >= kOrderedPoints && count > 4;
  Buffer<uint32_t> row(padded), rank(slots ? padded : 0);
  if (boxes) {
    Buffer<float> room;
    const float* wide = Widened<T>::of(mine, n * dim, room);
    hilbert_order(kernels, wide, dim, n, frame_of(wide, dim, n), threads, row.data(), nullptr);
  } else {
    for (int64_t i = 0; i < n; ++i) row[i] = static_cast<uint32_t>(i);
  }
  std::fill(row.data() + n, row.data() + padded, kNoRow);
  const int64_t turns = slots ? ceil_div(n, slots) : 0;
  Buffer<T> data(padded * dim);
  Buffer<int64_t> begins(1);
  begins[0] = 0;
  parallel_for(threads, ceil_div(padded, kChunk), [&](int64_t chunk) {
    const int64_t end = std::min(padded, (chunk + 1) * kChunk);
    for (int64_t at = chunk * kChunk; at < end; ++at) {
      const int64_t r = row[at];
      for (int32_t axis = 0; axis < dim; ++axis)
        data[axis * padded + at] = at < n ? mine[r * dim + axis] : T(0);
      if (slots)
        rank[at] =
            at < n ? static_cast<uint32_t>(reversed(r % slots, slots) * turns + r / slots) : kNoRow;
      if (r == cloud.start - cloud.first) begins[0] = at;  // one row, hence one writer
    }
  });
  const uint32_t* ranks = slots ? rank.data() : row.data();
  // A float is <= 1e-3 exactly where it is < 0.001f, which lies above.
  const T below = skip ? (sizeof(T) == 4 ? T(0.001f) : T(0.0010000000000000002)) : T(-1);
  Buffer<uint8_t> work(kernels.fps_work(n, sizeof(T), dim));
  const int64_t add = cloud.first - cloud.base;
  run({n, dim, padded, data.data(), ranks, row.data(), count, begins[0], stay, boxes, below, add,
       add, taken + cloud.begin, work.data()});
}

template <class T>
void sample_all(const T* points, int32_t dim, const Cloud* clouds, int64_t count, bool stay,
                bool skip, int64_t slots, int32_t threads, const PointKernels& kernels,
                void (*run)(const FpsJob<T>&), int64_t* taken) {
  if (count == 1)
    return sample(points, dim, clouds[0], stay, skip, slots, kernels, run, threads, taken);
  parallel_for(threads, count, [&](int64_t c) {
    sample(points, dim, clouds[c], stay, skip, slots, kernels, run, 1, taken);
  });
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int32_t s3d_fps(int32_t dtype, const void* points, int32_t dim, const int64_t* table,
                        int64_t count, int32_t stay, int32_t skip_near_origin, int64_t slots,
                        int32_t threads, int32_t path, int64_t* taken) {
  return guarded([&] {
    const PointKernels& kernels = point_kernels_of(path);
    const Cloud* clouds = reinterpret_cast<const Cloud*>(table);
    for (int64_t c = 0; c < count; ++c) {
      if (clouds[c].last - clouds[c].first >= kNoRow - slots) throw BadArgument{};
    }
    if (dtype == kFloat32) {
      sample_all(static_cast<const float*>(points), dim, clouds, count, stay != 0,
                 skip_near_origin != 0, slots, threads, kernels, kernels.fps_f32, taken);
    } else if (dtype == kFloat64) {
      sample_all(static_cast<const double*>(points), dim, clouds, count, stay != 0,
                 skip_near_origin != 0, slots, threads, kernels, kernels.fps_f64, taken);
    } else {
      throw BadArgument{};
    }
  });
}
