#include "segment.h"

#include "abi.h"

namespace s3d {
namespace {

// The maximum of entries [begin, end); the lowest row of equals, NaN over any number.
template <class E>
void chunk_max(const E* values, int64_t channels, const int64_t* order, int64_t begin, int64_t end,
               typename SumType<E>::type* best, int64_t* arg) {
  std::fill(arg, arg + channels, int64_t(-1));
  std::fill(best, best + channels, typename SumType<E>::type(0));
  for (int64_t i = begin; i < end; ++i) {
    const E* from = values + order[i] * channels;
    for (int64_t c = 0; c < channels; ++c) {
      const auto v = widen(from[c]);
      const bool wins = (arg[c] < 0) | (v > best[c]) | ((v != v) & (best[c] == best[c]));
      best[c] = wins ? v : best[c];
      arg[c] = wins ? order[i] : arg[c];
    }
  }
}

template <class E>
void segment_max(int32_t threads, const E* values, int64_t channels, const Segments& s, int64_t num,
                 E* out, int64_t* arg) {
  using T = typename SumType<E>::type;
  Buffer<int64_t> part(num + 1);
  for (int64_t k = 0; k < num; ++k) {
    const int64_t length = s.start[k + 1] - s.start[k];
    part[k] = length > kSegmentChunk ? ceil_div(length, kSegmentChunk) : 0;
  }
  part[num] = 0;
  const int64_t parts = prefix_sums(part.data(), num + 1);
  Buffer<T> partial(parts * channels);
  Buffer<int64_t> owner(parts * channels);
  parallel_for(threads, parts, [&](int64_t p) {
    const int64_t k = std::upper_bound(part.data(), part.data() + num + 1, p) - part.data() - 1;
    const int64_t begin = s.start[k] + (p - part[k]) * kSegmentChunk;
    chunk_max(values, channels, s.order.data(), begin,
              std::min(s.start[k + 1], begin + kSegmentChunk), partial.data() + p * channels,
              owner.data() + p * channels);
  });
  constexpr int64_t kItem = 256;
  parallel_for(threads, ceil_div(num, kItem), [&](int64_t i) {
    Buffer<T> best(channels);
    for (int64_t k = i * kItem, e = std::min(num, k + kItem); k < e; ++k) {
      int64_t* own = arg + k * channels;
      const int64_t first = part[k], count = part[k + 1] - first;
      chunk_max(values, channels, s.order.data(), s.start[k], count ? s.start[k] : s.start[k + 1],
                best.data(), own);
      for (int64_t p = first; p < first + count; ++p)
        for (int64_t c = 0; c < channels; ++c) {
          const T v = partial[p * channels + c];
          if (own[c] >= 0 && !(v > best[c]) && !(v != v && best[c] == best[c])) continue;
          best[c] = v;
          own[c] = owner[p * channels + c];
        }
      for (int64_t c = 0; c < channels; ++c) out[k * channels + c] = Narrow<E>::from(best[c]);
    }
  });
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int32_t s3d_segment_sum(int32_t threads, int32_t dtype, const void* values,
                                int64_t channels, const int64_t* ids, int64_t n, int64_t num,
                                void* out) {
  return guarded([&] {
    const Segments s = group_by_id(ids, n, num);
    with_dtype(dtype, [&](auto e) {
      using E = typename decltype(e)::type;
      const E* from = static_cast<const E*>(values);
      sum_segments(threads, s, num, channels, static_cast<E*>(out), [&](int64_t i, auto* sums) {
        for (int64_t c = 0; c < channels; ++c) sums[c] += widen(from[i * channels + c]);
      });
    });
  });
}

S3D_API int32_t s3d_segment_max(int32_t threads, int32_t dtype, const void* values,
                                int64_t channels, const int64_t* ids, int64_t n, int64_t num,
                                void* out, int64_t* arg) {
  return guarded([&] {
    const Segments s = group_by_id(ids, n, num);
    with_dtype(dtype, [&](auto e) {
      using E = typename decltype(e)::type;
      segment_max(threads, static_cast<const E*>(values), channels, s, num, static_cast<E*>(out),
                  arg);
    });
  });
}
