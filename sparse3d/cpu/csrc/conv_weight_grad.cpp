// Weight gradient: per tap, chunks of pairs are packed into panels and multiplied as one matrix
// product; long taps are cut into segments of a fixed number of pairs, whose sums are added in
// order.
#include <vector>

#include "abi.h"
#include "conv.h"

namespace s3d {
namespace {

constexpr int64_t kPairs = 256;          // of one product
constexpr int64_t kLeastSegment = 8192;  // pairs
constexpr int64_t kMostSegments = 64;    // beyond one a tap

template <class E>
using Sum = typename SumType<E>::type;

struct Segment {
  int64_t tap, begin, end;
};

// Depends on the pairs alone.
std::vector<Segment> segments_of(const WeightGradCall& c) {
  const int64_t length =
      ceil_div(std::max(kLeastSegment, ceil_div(c.splits[c.taps], kMostSegments)), kPairs) * kPairs;
  std::vector<Segment> segments;
  for (int64_t t = 0; t < c.taps; ++t)
    for (int64_t p = c.splits[t]; p < c.splits[t + 1]; p += length)
      segments.push_back({t, p, std::min(c.splits[t + 1], p + length)});
  return segments;
}

// Sums of a segment and group into out [channels_out][channels_in].
template <class E>
void sum_segment(const WeightGradCall& c, const Kernels& kernels, const Segment& s, int64_t group,
                 Sum<E>* out, int64_t ldo) {
  using T = Sum<E>;
  constexpr bool kWide = std::is_same<E, T>::value;
  const Matmul<T>& mm = matmul_of<T>(kernels);
  const int64_t ci = c.channels_in, co = c.channels_out;
  int64_t left_width, right_width;
  mm.outer_shape(ci, &left_width, &right_width);
  const int64_t most = std::min(kPairs, s.end - s.begin);
  Buffer<T> left(ceil_div(co, left_width) * left_width * most),
      right(ceil_div(ci, right_width) * right_width * most);
  Buffer<T> wide(kWide ? 0 : most * std::max(ci, co));
  const E *x = static_cast<const E*>(c.x) + group * ci,
          *g = static_cast<const E*>(c.g) + group * co;
  for (int64_t p = s.begin; p < s.end; p += kPairs) {
    const int64_t n = std::min(kPairs, s.end - p);
    if constexpr (kWide) {
      mm.outer_pack(g, c.ldg, c.out + p, n, co, left_width, left.data());
      mm.outer_pack(x, c.ldx, c.in + p, n, ci, right_width, right.data());
    } else {
      widen_rows(kernels, g, c.ldg, c.out + p, n, co, wide.data());
      mm.outer_pack(wide.data(), co, nullptr, n, co, left_width, left.data());
      widen_rows(kernels, x, c.ldx, c.in + p, n, ci, wide.data());
      mm.outer_pack(wide.data(), ci, nullptr, n, ci, right_width, right.data());
    }
    mm.outer({left.data(), right.data(), n, co, ci, out, ldo, p == s.begin});
  }
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
void weight_grad(const WeightGradCall& c, const Kernels& kernels) {
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
    if constexpr (std::is_same<E, T>::value)
      if (at < 0) {
        sum_segment<E>(c, kernels, s, group,
                       dw + (group * c.channels_out * c.taps + s.tap) * c.channels_in,
                       c.taps * c.channels_in);
        return;
      }
    sum_segment<E>(c, kernels, s, group, sums.data() + (at * c.groups + group) * size,
                   c.channels_in);
  });

  parallel_for(c.threads, c.taps * c.groups, [&](int64_t item) {
    const int64_t t = item / c.groups, group = item % c.groups;
    const int64_t a = first[static_cast<size_t>(t)], b = first[static_cast<size_t>(t + 1)];
    if (b > a && part[static_cast<size_t>(a)] < 0) return;
    for (int64_t n = 0; n < c.channels_out; ++n) {
      E* to = dw + ((group * c.channels_out + n) * c.taps + t) * c.channels_in;
      for (int64_t k = 0; k < c.channels_in; ++k) {
        T v = 0;
        for (int64_t i = a; i < b; ++i) {
          const T add = sums[(part[static_cast<size_t>(i)] * c.groups + group) * size +
                             n * c.channels_in + k];
          v = i == a ? add : v + add;
        }
        to[k] = Narrow<E>::from(v);
      }
    }
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
    with_dtype(c.dtype, [&](auto e) { weight_grad<typename decltype(e)::type>(c, kernels); });
  });
}
