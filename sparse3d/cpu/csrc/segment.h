// Rows grouped by segment, and sums of long groups in fixed chunks.
#pragma once

#include "half.h"
#include "order.h"
#include "thread_pool.h"

namespace s3d {

constexpr int64_t kSegmentChunk = 512;  // entries summed before chunk sums are added in order

// order[start[s], start[s+1]) are the entries of segment s, ascending. Entries of ids outside
// [0, num) are left out.
struct Segments {
  Buffer<int64_t> start, order;
};

template <class I>
Segments group_by_id(const I* ids, int64_t n, int64_t num) {
  Segments s{Buffer<int64_t>(num + 1), Buffer<int64_t>(n)};
  std::fill(s.start.data(), s.start.data() + num + 1, int64_t(0));
  for (int64_t i = 0; i < n; ++i)
    if (ids[i] >= 0 && ids[i] < num) ++s.start[ids[i]];
  prefix_sums(s.start.data(), num + 1);
  Buffer<int64_t> next(num);
  std::copy(s.start.data(), s.start.data() + num, next.data());
  for (int64_t i = 0; i < n; ++i)
    if (ids[i] >= 0 && ids[i] < num) s.order[next[ids[i]]++] = i;
  return s;
}

// out[s] = sum over the entries of segment s of add(entry, row of sums): chunks of kSegmentChunk
// entries, then the chunk sums in order. Segments are cut into work items of about kChunk entries;
// the chunks of a segment longer than that are items of their own.
template <class E, class Add>
void sum_segments(int32_t threads, const Segments& s, int64_t num, int64_t channels, E* out,
                  const Add& add) {
  using T = typename SumType<E>::type;
  const auto chunk_sum = [&](int64_t begin, int64_t end, T* sums) {
    std::fill(sums, sums + channels, T(0));
    for (int64_t i = begin; i < end; ++i) add(s.order[i], sums);
  };
  // Chunks of long segments first, each by itself.
  Buffer<int64_t> part(num + 1);
  for (int64_t k = 0; k < num; ++k) {
    const int64_t length = s.start[k + 1] - s.start[k];
    part[k] = length > kSegmentChunk ? ceil_div(length, kSegmentChunk) : 0;
  }
  part[num] = 0;
  const int64_t parts = prefix_sums(part.data(), num + 1);
  Buffer<T> partial(parts * channels);
  parallel_for(threads, parts, [&](int64_t p) {
    const int64_t k = std::upper_bound(part.data(), part.data() + num + 1, p) - part.data() - 1;
    const int64_t begin = s.start[k] + (p - part[k]) * kSegmentChunk;
    chunk_sum(begin, std::min(s.start[k + 1], begin + kSegmentChunk),
              partial.data() + p * channels);
  });
  constexpr int64_t kItem = 256;  // segments
  parallel_for(threads, ceil_div(num, kItem), [&](int64_t i) {
    Buffer<T> sums(channels);
    for (int64_t k = i * kItem, e = std::min(num, k + kItem); k < e; ++k) {
      const int64_t first = part[k], count = part[k + 1] - first;
      if (count == 0) {
        chunk_sum(s.start[k], s.start[k + 1], sums.data());
      } else {
        std::copy(partial.data() + first * channels, partial.data() + (first + 1) * channels,
                  sums.data());
        for (int64_t p = 1; p < count; ++p)
          for (int64_t c = 0; c < channels; ++c) sums[c] += partial[(first + p) * channels + c];
      }
      for (int64_t c = 0; c < channels; ++c) out[k * channels + c] = Narrow<E>::from(sums[c]);
    }
  });
}

}  // namespace s3d
