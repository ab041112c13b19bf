// A kernel map under construction: found natively, sized, then copied into the caller's arrays.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "common.h"
#include "dispatch.h"
#include "table.h"

namespace s3d {

// kernel, stride, padding and dilation of each axis; taps row-major, last axis fastest.
struct Geometry {
  int ndim = 0;
  static constexpr int64_t kFarthest = int64_t(1) << 62;  // offsets stay within 64 bits
  int64_t taps = 1;
  int64_t kernel[4], stride[4], padding[4], dilation[4];

  Geometry(int32_t n, const int64_t* k, const int64_t* s, const int64_t* p, const int64_t* d)
      : ndim(n) {
    for (int a = 0; a < n; ++a) {
      kernel[a] = k[a];
      stride[a] = s ? s[a] : 1;
      dilation[a] = d[a];
      if (kernel[a] < 1 || stride[a] < 1 || dilation[a] < 1) throw BadArgument{};
      if (dilation[a] > kFarthest / kernel[a]) throw BadArgument{};
      padding[a] = p ? p[a] : dilation[a] * (kernel[a] / 2);
      taps *= kernel[a];
    }
  }
  // Offset t*dilation - padding of a tap along each axis.
  void offset(int64_t tap, int64_t* out) const {
    for (int a = ndim - 1; a >= 0; --a) {
      out[a] = tap % kernel[a] * dilation[a] - padding[a];
      tap /= kernel[a];
    }
  }
};

// Memory of lists that work items find, in few blocks.
class Slabs {
 public:
  void reserve(int64_t n) { grow(n); }
  int32_t* take(int64_t n) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (used_ + n > room_) grow(std::max(n, kLeast));
    used_ += n;
    return blocks_.back().data() + used_ - n;
  }

 private:
  static constexpr int64_t kLeast = 1 << 20;
  void grow(int64_t n) {
    blocks_.emplace_back(n);
    used_ = 0;
    room_ = n;
  }
  std::mutex mutex_;
  std::vector<Buffer<int32_t>> blocks_;
  int64_t used_ = 0, room_ = 0;
};

class Mirror;

struct MapBuild {
  int64_t taps = 0, rows_out = 0, pairs = 0;
  std::vector<int64_t> splits;
  Buffer<int32_t> out_coords;  // created maps only

  // Either a neighbour table [taps][rows_out], compacted when taken ...
  Buffer<int32_t> neighbour;
  // ... or, where tap `identity` pairs every row with itself and the taps after it mirror those
  // before it, the pairs of the latter for every chunk of rows: all src and then all dst, tap by
  // tap ...
  int64_t identity = -1;
  Slabs slabs;
  std::vector<const int32_t*> lists;
  std::shared_ptr<const Mirror> mirror;
  std::vector<int64_t> start;  // of every (tap, chunk of rows) in the pair list
  const Kernels* kernels = nullptr;
  // ... or the finished pairs.
  Buffer<int32_t> src, dst;

  // All sizes: from the neighbour table, or from what is counted.
  void size(int32_t threads);
  void take(int32_t threads, int32_t* to_src, int32_t* to_dst) const;

 private:
  void take_chunk(int64_t chunk, int32_t* to_src, int32_t* to_dst) const;
};

// Neighbour table of given outputs: nbr[t][q] = row of q*stride - padding + t*dilation, or -1.
template <int W>
void search_given(int32_t threads, const Kernels& kernels, const Table<W>& table, const Geometry& g,
                  const int32_t* out, int64_t rows_out, MapBuild& map);

// The submanifold map; table may be null, it is then built where it is needed.
template <int W>
void build_submanifold(int32_t threads, const Kernels& kernels, const int32_t* coords, int64_t n,
                       int32_t* table, const Geometry& g, MapBuild& map);

}  // namespace s3d
