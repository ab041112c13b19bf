// Weight gradient: sums over a tap's pairs, as products of some hundred pairs.
//
// Where the sums of all taps fit in a cache, pairs are taken tile by tile of the rows that ascend
// in every tap: a tile's rows are then read from memory once, not once a tap. Else each tap is cut
// into segments of a fixed number of pairs. Parts and segments depend on the pairs alone, and
// their sums are added in order.
#include <vector>

#include "abi.h"
#include "conv.h"

namespace s3d {
namespace {

// Measured, see bench/bench_cpu.py.
constexpr int64_t kPairs = 128;  // of one product: 64 columns of them stay in the first cache
constexpr int64_t kLeastSegment = 8192;    // pairs
constexpr int64_t kMostSegments = 64;      // beyond one a tap
constexpr int64_t kTileBytes = 1 << 20;    // of the rows of both sides
constexpr int64_t kPartBytes = 512 << 10;  // the most that a part's sums may take
constexpr int64_t kMostParts = 16, kPartRows = 2048;
constexpr int64_t kMostInPlace = 128;  // channels of both sides; wider rows collide in the cache

template <class E>
using Sum = typename SumType<E>::type;

// Elements between rows of `columns`: an odd number of cache lines, so that rows spread over all
// sets.
template <class T>
int64_t spread(int64_t columns) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  return (ceil_div(columns, kLine) | 1) * kLine;
}

// Sums pairs [begin, end) of one group into out [channels_out][channels_in].
template <class E>
class Summer {
 public:
  using T = Sum<E>;

  Summer(const WeightGradCall& c, const Kernels& kernels)
      : c_(c), kernels_(kernels), mm_(matmul_of<T>(kernels)) {
    in_place_ = std::is_same<E, T>::value && c.channels_in % mm_.lanes == 0 &&
                c.channels_in + c.channels_out <= kMostInPlace;
    if (in_place_) return;
    left_ = Buffer<T>(kPairs * spread<T>(c.channels_out));
    right_ = Buffer<T>(kPairs * spread<T>(c.channels_in));
    std::fill(right_.data(), right_.data() + right_.size(), T(0));
  }

  void add(int64_t begin, int64_t end, int64_t group, T* out, int64_t ldo, bool store) {
    const int64_t ci = c_.channels_in, co = c_.channels_out;
    const E *x = static_cast<const E*>(c_.x) + group * ci,
            *g = static_cast<const E*>(c_.g) + group * co;
    Outer<T> j{};
    j.rows = co;
    j.columns = ci;
    j.out = out;
    j.ldo = ldo;
    j.store = store;
    Ahead ahead = ahead_of(x, g);
    j.ahead = in_place_ ? nullptr : &ahead;
    for (int64_t p = begin; p < end; p += kPairs, j.store = false) {
      j.n = std::min(kPairs, end - p);
      place(x, g, p, &j);
      ahead.rows[0] = c_.out + p + j.n;
      ahead.rows[1] = c_.in + p + j.n;
      ahead.n = std::min(kPairs, end - p - j.n);
      mm_.outer(j);
    }
  }

 private:
  Ahead ahead_of(const E* x, const E* g) const {
    constexpr auto kSize = static_cast<int64_t>(sizeof(E));
    const auto lines = [](int64_t channels) { return ceil_div(channels * kSize, 64); };
    return {{reinterpret_cast<const char*>(g), reinterpret_cast<const char*>(x)},
            {c_.ldg * kSize, c_.ldx * kSize},
            {lines(c_.channels_out), lines(c_.channels_in)},
            {nullptr, nullptr},
            0};
  }
  void place(const E* x, const E* g, int64_t p, Outer<T>* j) {
    if constexpr (std::is_same<E, T>::value) {
      if (in_place_) {
        j->left = g;
        j->right = x;
        j->ldl = c_.ldg;
        j->ldr = c_.ldx;
        j->left_rows = c_.out + p;
        j->right_rows = c_.in + p;
        return;
      }
    }
    j->left = left_.data();
    j->right = right_.data();
    j->ldl = spread<T>(j->rows);
    j->ldr = spread<T>(j->columns);
    if constexpr (std::is_same<E, T>::value) {
      mm_.gather(g, c_.ldg, c_.out + p, j->n, j->rows, left_.data(), j->ldl);
      mm_.gather(x, c_.ldx, c_.in + p, j->n, j->columns, right_.data(), j->ldr);
    } else {
      widen_rows(kernels_, g, c_.ldg, c_.out + p, j->n, j->rows, left_.data(), j->ldl);
      widen_rows(kernels_, x, c_.ldx, c_.in + p, j->n, j->columns, right_.data(), j->ldr);
    }
  }

  const WeightGradCall& c_;
  const Kernels& kernels_;
  const Matmul<T>& mm_;
  bool in_place_;
  Buffer<T> left_, right_;
};

// dw of (group, tap) = sum of the parts [first, last), each `stride` apart.
template <class E>
void add_parts(const WeightGradCall& c, const Sum<E>* sums, int64_t count, int64_t stride,
               int64_t group, int64_t tap) {
  auto* dw = static_cast<E*>(c.dw);
  for (int64_t n = 0; n < c.channels_out; ++n) {
    E* to = dw + ((group * c.channels_out + n) * c.taps + tap) * c.channels_in;
    const Sum<E>* from = sums + n * c.channels_in;
    for (int64_t k = 0; k < c.channels_in; ++k) {
      Sum<E> v = 0;
      for (int64_t i = 0; i < count; ++i) v = i == 0 ? from[k] : v + from[i * stride + k];
      to[k] = Narrow<E>::from(v);
    }
  }
}

template <class E>
bool fits_tiles(const WeightGradCall& c) {
  const int64_t size = c.taps * c.channels_in * c.channels_out;
  return c.sorted && c.groups == 1 && c.channels_in + c.channels_out <= kMostInPlace &&
         size * static_cast<int64_t>(sizeof(Sum<E>)) <= kPartBytes;
}

template <class E>
void weight_grad_by_tiles(const WeightGradCall& c, const Kernels& kernels) {
  using T = Sum<E>;
  const int64_t size = c.channels_in * c.channels_out, rows = c.sorted_rows;
  const int64_t parts = std::max<int64_t>(1, std::min(kMostParts, ceil_div(rows, kPartRows)));
  const int64_t part_rows = ceil_div(rows, parts);
  const int64_t row_bytes = (c.channels_in + c.channels_out) * static_cast<int64_t>(sizeof(T));
  const int64_t tile_rows = std::max<int64_t>(512, kTileBytes / row_bytes);
  Buffer<T> sums(parts * c.taps * size);
  parallel_for(c.threads, parts, [&](int64_t part) {
    T* mine = sums.data() + part * c.taps * size;
    std::fill(mine, mine + c.taps * size, T(0));
    Summer<E> summer(c, kernels);
    const int64_t last = std::min(rows, (part + 1) * part_rows);
    for (int64_t row = part * part_rows; row < last; row += tile_rows)
      for (int64_t t = 0; t < c.taps; ++t) {
        const Range r = tile_range(c.sorted, c.splits, t, row, std::min(last, row + tile_rows));
        summer.add(r.begin, r.end, 0, mine + t * size, c.channels_in, false);
      }
  });
  parallel_for(c.threads, c.taps, [&](int64_t t) {
    add_parts<E>(c, sums.data() + t * size, parts, c.taps * size, 0, t);
  });
}

struct Segment {
  int64_t tap, begin, end;
};

std::vector<Segment> segments_of(const WeightGradCall& c) {
  const int64_t length =
      ceil_div(std::max(kLeastSegment, ceil_div(c.splits[c.taps], kMostSegments)), kPairs) * kPairs;
  std::vector<Segment> segments;
  for (int64_t t = 0; t < c.taps; ++t)
    for (int64_t p = c.splits[t]; p < c.splits[t + 1]; p += length)
      segments.push_back({t, p, std::min(c.splits[t + 1], p + length)});
  return segments;
}

template <class E>
void sum_segment_depthwise(const WeightGradCall& c, const Segment& s, Sum<E>* out) {
  using T = Sum<E>;
  const int64_t channels = c.groups;
  Buffer<T> chunk(channels);
  std::fill(out, out + channels, T(0));
  for (int64_t b = s.begin; b < s.end; b += kPairs) {
    std::fill(chunk.data(), chunk.data() + channels, T(0));
    for (int64_t p = b, e = std::min(s.end, b + kPairs); p < e; ++p) {
      const E* x = static_cast<const E*>(c.x) + int64_t(c.in[p]) * c.ldx;
      const E* g = static_cast<const E*>(c.g) + int64_t(c.out[p]) * c.ldg;
      for (int64_t a = 0; a < channels; ++a) chunk[a] += widen(x[a]) * widen(g[a]);
    }
    for (int64_t a = 0; a < channels; ++a) out[a] += chunk[a];
  }
}

template <class E>
void weight_grad_by_segments(const WeightGradCall& c, const Kernels& kernels) {
  using T = Sum<E>;
  const bool depthwise = c.groups > 1 && c.channels_in == 1 && c.channels_out == 1;
  const int64_t size = c.channels_in * c.channels_out;  // of one group and tap
  auto* dw = static_cast<E*>(c.dw);
  const std::vector<Segment> segments = segments_of(c);
  std::vector<int64_t> first(static_cast<size_t>(c.taps + 1), 0);  // segment of each tap
  for (const Segment& s : segments) ++first[static_cast<size_t>(s.tap + 1)];
  for (int64_t t = 0; t < c.taps; ++t)
    first[static_cast<size_t>(t + 1)] += first[static_cast<size_t>(t)];
  const auto count = static_cast<int64_t>(segments.size());

  // A tap of one segment is summed where it belongs; the others in parts of their own.
  std::vector<int64_t> part(static_cast<size_t>(count), -1);
  int64_t parts = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto t = static_cast<size_t>(segments[static_cast<size_t>(i)].tap);
    if (!std::is_same<E, T>::value || depthwise || first[t + 1] - first[t] > 1)
      part[static_cast<size_t>(i)] = parts++;
  }
  Buffer<T> sums(parts * c.groups * size);
  const int64_t lists = depthwise ? 1 : c.groups;
  parallel_for(c.threads, count * lists, [&](int64_t item) {
    const int64_t i = item / lists, group = item % lists;
    const Segment& s = segments[static_cast<size_t>(i)];
    const int64_t at = part[static_cast<size_t>(i)];
    if (depthwise) {
      sum_segment_depthwise<E>(c, s, sums.data() + at * c.groups);
      return;
    }
    Summer<E> summer(c, kernels);
    if constexpr (std::is_same<E, T>::value)
      if (at < 0) {
        summer.add(s.begin, s.end, group,
                   dw + (group * c.channels_out * c.taps + s.tap) * c.channels_in,
                   c.taps * c.channels_in, true);
        return;
      }
    summer.add(s.begin, s.end, group, sums.data() + (at * c.groups + group) * size, c.channels_in,
               true);
  });

  parallel_for(c.threads, c.taps * c.groups, [&](int64_t item) {
    const int64_t t = item / c.groups, group = item % c.groups;
    const int64_t a = first[static_cast<size_t>(t)], b = first[static_cast<size_t>(t + 1)];
    if (b > a && part[static_cast<size_t>(a)] < 0) return;
    const int64_t from = b > a ? part[static_cast<size_t>(a)] : 0;
    add_parts<E>(c, sums.data() + (from * c.groups + group) * size, b - a, c.groups * size, group,
                 t);
  });
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int32_t s3d_conv_weight_grad(const WeightGradCall* call) {
  return guarded([&] {
    const WeightGradCall& c = *call;
    if (c.channels_in == 0 || c.channels_out == 0 || c.groups == 0 || c.taps == 0) return;
    const Kernels& kernels = kernels_of(resolve_path(c.path));
    with_dtype(c.dtype, [&](auto e) {
      using E = typename decltype(e)::type;
      if (fits_tiles<E>(c))
        weight_grad_by_tiles<E>(c, kernels);
      else
        weight_grad_by_segments<E>(c, kernels);
    });
  });
}
