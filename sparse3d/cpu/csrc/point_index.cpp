#include "point_index.h"

#include <limits>

#include "dispatch.h"
#include "thread_pool.h"

namespace s3d {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kAlign = 64;
constexpr int kKeyBits = 48;

int64_t aligned(int64_t bytes) { return ceil_div(bytes, kAlign) * kAlign; }

struct Layout {
  int64_t padded, leaves, frame, xyz[3], row, leaf_key, box[kMaxLevels], first[kMaxLevels], bytes;
  int32_t levels;
  int64_t count[kMaxLevels];
};

Layout layout_of(int64_t n) {
  Layout l{};
  l.padded = ceil_div(n, kLeaf) * kLeaf;
  l.leaves = l.padded / kLeaf;
  int64_t at = 0;
  const auto take = [&at](int64_t bytes) {
    const int64_t begin = at;
    at += aligned(bytes);
    return begin;
  };
  l.frame = take(sizeof(Frame3));
  for (int64_t& column : l.xyz) column = take(l.padded * 4);
  l.row = take(l.padded * 4);
  l.leaf_key = take(l.leaves * 8);
  for (int64_t nodes = l.leaves;; nodes = ceil_div(nodes, kLane)) {
    l.count[l.levels] = nodes;
    l.box[l.levels] = take(ceil_div(nodes, kLane) * kLane * 6 * 4);
    l.first[l.levels] = take(ceil_div(nodes, kLane) * kLane * 4);
    ++l.levels;
    if (nodes <= kLane) break;
  }
  l.bytes = at;
  return l;
}

void empty_group(float* box, uint32_t* first) {
  std::fill(box, box + 3 * kLane, kInfinity);
  std::fill(box + 3 * kLane, box + 6 * kLane, -kInfinity);
  std::fill(first, first + kLane, kNoRow);
}

// Node `group` of the level above is the union of 8 siblings.
void lift(const float* box, const uint32_t* first, int64_t group, float* above,
          uint32_t* above_first) {
  const float* below = box + group * 6 * kLane;
  float* node = above + (group / kLane) * 6 * kLane + group % kLane;
  for (int side = 0; side < 6; ++side) {
    const float* values = below + side * kLane;
    node[side * kLane] = side < 3 ? *std::min_element(values, values + kLane)
                                  : *std::max_element(values, values + kLane);
  }
  above_first[group] = *std::min_element(first + group * kLane, first + (group + 1) * kLane);
}

// Most buckets hold a few points.
void sort_bucket(uint64_t* from, uint64_t* to) {
  if (to - from > 24) return std::sort(from, to);
  for (uint64_t* i = from + 1; i < to; ++i) {
    const uint64_t moved = *i;
    uint64_t* j = i;
    for (; j > from && j[-1] > moved; --j) *j = j[-1];
    *j = moved;
  }
}

}  // namespace

const PointKernels& point_kernels_of(int32_t path) {
  const int32_t resolved = resolve_path(path);
  const PointKernels* found = nullptr;
  if (&kernels_of(resolved) == avx512_kernels()) found = avx512_point_kernels();
  if (resolved == kAvx2) found = avx2_point_kernels();
  return found ? *found : *portable_point_kernels();
}

Frame3 frame_of(const float* points, int32_t dim, int64_t n) {
  Frame3 frame{};
  float extent = 0;
  for (int32_t axis = 0; axis < std::min(dim, 3) && n > 0; ++axis) {
    float low = points[axis], high = low;
    for (int64_t i = 1; i < n; ++i) {
      const float value = points[i * dim + axis];
      low = std::min(low, value);
      high = std::max(high, value);
    }
    frame.origin[axis] = low;
    extent = std::max(extent, high - low);
  }
  const float scale = extent > 0 && extent < kInfinity ? 65535.0f / extent : 0.0f;
  for (float& s : frame.scale) s = scale < kInfinity ? scale : 0.0f;
  return frame;
}

void hilbert_order(const PointKernels& kernels, const float* points, int32_t dim, int64_t n,
                   const Frame3& frame, int32_t threads, uint32_t* order, uint64_t* keys) {
  if (n == 0) return;
  Buffer<uint64_t> key(n), entry(n);
  parallel_for(threads, chunk_count(n), [&](int64_t chunk) {
    const int64_t begin = chunk * kChunk, size = std::min(kChunk, n - begin);
    kernels.hilbert(points + begin * dim, dim, size, frame.origin, frame.scale, key.data() + begin);
  });
  // Buckets by the leading bits, then each by the next 32 bits and the row: the order is total.
  const int top = std::clamp(log2_ceil(n) - 1, 1, 16);
  const int64_t buckets = int64_t(1) << top;
  Buffer<uint32_t> begin(buckets + 1);
  std::fill(begin.data(), begin.data() + buckets + 1, 0u);
  for (int64_t i = 0; i < n; ++i) ++begin[static_cast<int64_t>(key[i] >> (kKeyBits - top)) + 1];
  for (int64_t b = 0; b < buckets; ++b) begin[b + 1] += begin[b];
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t low = (key[i] >> (16 - top)) & 0xffffffffu;
    entry[begin[static_cast<int64_t>(key[i] >> (kKeyBits - top))]++] =
        low << 32 | static_cast<uint64_t>(i);
  }
  const int64_t run = std::max<int64_t>(1, buckets / 64);
  parallel_for(threads, ceil_div(buckets, run), [&](int64_t item) {
    const int64_t last = std::min(buckets, (item + 1) * run);
    for (int64_t b = item * run; b < last; ++b) {
      uint64_t* from = entry.data() + (b ? begin[b - 1] : 0);
      uint64_t* to = entry.data() + begin[b];
      sort_bucket(from, to);
      for (uint64_t* e = from; e < to; ++e) {
        const int64_t at = e - entry.data();
        order[at] = static_cast<uint32_t>(*e);
        if (keys) keys[at] = key[static_cast<uint32_t>(*e)];
      }
    }
  });
}

int64_t index_bytes(int64_t n) { return n > 0 ? layout_of(n).bytes : 0; }

void index_build(const PointKernels& kernels, const float* points, int32_t dim, int64_t n,
                 int32_t threads, uint8_t* block) {
  if (n == 0) return;
  const Layout l = layout_of(n);
  const Frame3 frame = frame_of(points, dim, n);
  std::memcpy(block + l.frame, &frame, sizeof frame);
  uint32_t* row = reinterpret_cast<uint32_t*>(block + l.row);
  uint64_t* leaf_key = reinterpret_cast<uint64_t*>(block + l.leaf_key);
  float* xyz[3];
  for (int axis = 0; axis < 3; ++axis) xyz[axis] = reinterpret_cast<float*>(block + l.xyz[axis]);
  Buffer<uint64_t> keys(n);
  hilbert_order(kernels, points, dim, n, frame, threads, row, keys.data());
  std::fill(row + n, row + l.padded, kNoRow);
  float* box = reinterpret_cast<float*>(block + l.box[0]);
  uint32_t* first = reinterpret_cast<uint32_t*>(block + l.first[0]);
  const int64_t groups = ceil_div(l.leaves, kLane);
  empty_group(box + (groups - 1) * 6 * kLane, first + (groups - 1) * kLane);
  constexpr int64_t kLeavesAnItem = 256;
  parallel_for(threads, ceil_div(l.leaves, kLeavesAnItem), [&](int64_t item) {
    const int64_t leaf = item * kLeavesAnItem, last = std::min(l.leaves, leaf + kLeavesAnItem);
    for (int64_t at = leaf * kLeaf; at < last * kLeaf; ++at) {
      for (int axis = 0; axis < 3; ++axis) {
        xyz[axis][at] = at >= n      ? kInfinity
                        : axis < dim ? points[int64_t(row[at]) * dim + axis]
                                     : 0.0f;
      }
    }
    for (int64_t at = leaf; at < last; ++at) leaf_key[at] = keys[at * kLeaf];
    const float* const columns[3] = {xyz[0], xyz[1], xyz[2]};
    kernels.boxes(columns, row, leaf, last, box, first);
  });
  for (int32_t level = 1; level < l.levels; ++level) {
    const float* below = reinterpret_cast<const float*>(block + l.box[level - 1]);
    const uint32_t* below_first = reinterpret_cast<const uint32_t*>(block + l.first[level - 1]);
    float* above = reinterpret_cast<float*>(block + l.box[level]);
    uint32_t* above_first = reinterpret_cast<uint32_t*>(block + l.first[level]);
    const int64_t last = ceil_div(l.count[level], kLane) - 1;
    empty_group(above + last * 6 * kLane, above_first + last * kLane);
    for (int64_t node = 0; node < l.count[level]; ++node)
      lift(below, below_first, node, above, above_first);
  }
}

Index index_view(const uint8_t* block, int64_t n) {
  const Layout l = layout_of(n);
  Index index{};
  std::memcpy(&index.frame, block + l.frame, sizeof index.frame);
  index.leaf_key = reinterpret_cast<const uint64_t*>(block + l.leaf_key);
  Tree& tree = index.tree;
  tree.n = n;
  tree.levels = l.levels;
  tree.row = reinterpret_cast<const uint32_t*>(block + l.row);
  for (int axis = 0; axis < 3; ++axis)
    tree.xyz[axis] = reinterpret_cast<const float*>(block + l.xyz[axis]);
  for (int32_t level = 0; level < l.levels; ++level) {
    tree.count[level] = l.count[level];
    tree.box[level] = reinterpret_cast<const float*>(block + l.box[level]);
    tree.first[level] = reinterpret_cast<const uint32_t*>(block + l.first[level]);
  }
  return index;
}

uint32_t index_near(const Index& index, uint64_t key) {
  const uint64_t* end = index.leaf_key + index.tree.count[0];
  const int64_t leaf = std::upper_bound(index.leaf_key, end, key) - index.leaf_key;
  return static_cast<uint32_t>(std::max<int64_t>(leaf - 1, 0) * kLeaf + kLeaf / 2);
}

}  // namespace s3d
