// Point kernels that exist once per instruction set, and what they see of a spatial index. Seen by
// files compiled for other instruction sets: declarations and plain data only (see dispatch.h).
#pragma once

#include <cstdint>

namespace s3d {

constexpr int kLane = 8;        // points of a vector, children of a node
constexpr int kLeaf = 16;       // points of a leaf
constexpr int kMaxLevels = 12;  // 16 * 8^11 points
constexpr uint32_t kNoRow = 0x7fffffff;

enum Metric : int32_t { kSquared = 0, kEuclidean = 1, kL1 = 2 };

// A box hierarchy over points in Hilbert order. Level 0 nodes are the leaves; a node has 8
// children. Boxes of 8 siblings lie together, [group][low x, y, z, high x, y, z][8]. Coordinates
// beyond the last point are +infinity, boxes beyond the last node are inside out.
struct Tree {
  int64_t n;
  int32_t levels;
  int64_t count[kMaxLevels];
  const float* xyz[3];  // [n rounded up to kLeaf] each
  const uint32_t* row;  // row of each point in the caller's tensor, kNoRow beyond
  const float* box[kMaxLevels];
  const uint32_t* first[kMaxLevels];  // smallest row below each node, [group][8]
};

constexpr int64_t kTile = 256;   // points that a scan takes at once
constexpr int64_t kBucket = 64;  // points of a bucket of farthest point sampling

// Points in the caller's order, one array a coordinate, padded with +infinity to whole tiles.
template <class T>
struct Columns {
  int64_t n, stride;  // column c starts at data + c * stride
  int32_t dim;
  const T* data;
};

// Queries are taken in the order `order` (null: 0, 1, ...); `near` is a position in the tree close
// to each of them. A result row belongs to the query's row.
struct KnnJob {
  const Tree* tree;
  const float* query;  // [., dim]
  int32_t dim;
  const uint32_t* order;
  const uint32_t* near;
  int64_t begin, end;
  int64_t k;
  int32_t metric;
  float* distance;  // [., k]
  int64_t* index;   // [., k]
  int64_t add;      // to every row found
  void* work;       // knn_work(k) bytes
};

struct BallJob {
  const Tree* tree;  // null: scan
  const Columns<float>* columns;
  const float* query;
  int32_t dim;
  const uint32_t* order;
  int64_t begin, end;
  int64_t k;
  float squared_radius;
  int64_t skip;  // a hit of row r is dropped for query q where r == q + skip; none: INT64_MIN
  float* distance;
  int64_t* index;
  int64_t add;
  void* work;  // ball_work(k) bytes
};

template <class T>
struct ScanJob {
  const Columns<T>* columns;
  const T* query;
  int64_t begin, end;
  int64_t k;
  int32_t metric;
  T* distance;
  int64_t* index;
  int64_t add;
  void* work;  // scan_work(k, n) bytes
};

// The first k rows within a radius, any dimension and type.
template <class T>
struct BallScanJob {
  const Columns<T>* columns;
  const T* query;
  int64_t begin, end;
  int64_t k;
  T squared_radius;
  int64_t skip;
  T* distance;
  int64_t* index;
  int64_t add;
};

// One cloud of farthest point sampling. Buckets of `bucket` points in tree order.
template <class T>
struct FpsJob {
  int64_t n;
  int32_t dim;
  int64_t stride;
  const T* data;         // [dim][stride], positions padded to 8 buckets
  const uint32_t* rank;  // place of each point in the order that decides ties, padded with kNoRow
  const uint32_t* row;   // row of each position
  int64_t count;
  int64_t start;  // position of the first point
  bool stay;
  bool boxes;     // prune by boxes (dim <= 3)
  T skip_below;   // positions of a smaller squared norm never win; negative: none
  int64_t first;  // row 0 of the cloud plus `add`, what an exhausted cloud repeats
  int64_t add;
  int64_t* taken;
  void* work;  // fps_work(n, sizeof(T), dim) bytes
};

struct PointKernels {
  // Hilbert keys, 48 bits, of points scaled to [0, 65536) by (p - origin) * scale.
  void (*hilbert)(const float* xyz, int32_t dim, int64_t n, const float* origin, const float* scale,
                  uint64_t* key);
  // Boxes of `count` runs of `run` points each, written as groups of 8.
  void (*boxes)(const float* const* xyz, const uint32_t* row, int64_t begin, int64_t end,
                float* box, uint32_t* first);
  int64_t (*knn_work)(int64_t k);
  void (*knn)(const KnnJob&);
  int64_t (*ball_work)(int64_t k);
  void (*ball)(const BallJob&);
  int64_t (*scan_work)(int64_t k, int64_t n);
  void (*scan_f32)(const ScanJob<float>&);
  void (*scan_f64)(const ScanJob<double>&);
  void (*ball_scan_f32)(const BallScanJob<float>&);
  void (*ball_scan_f64)(const BallScanJob<double>&);
  int64_t (*fps_work)(int64_t n, int64_t item, int64_t dim);
  void (*fps_f32)(const FpsJob<float>&);
  void (*fps_f64)(const FpsJob<double>&);
};

const PointKernels* portable_point_kernels();
const PointKernels* avx2_point_kernels();
const PointKernels* avx512_point_kernels();

const PointKernels& point_kernels_of(int32_t path);

}  // namespace s3d
