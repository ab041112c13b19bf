// What a convolution needs to know of its pairs, and their order by dst where a map lacks it.
#include "pairs.h"

#include <atomic>

#include "abi.h"
#include "order.h"

using namespace s3d;

namespace {

constexpr int64_t kPiece = 1 << 15;  // pairs of one work item

// Splits the pairs of every tap into pieces and calls f(tap, begin, end) for them in parallel.
template <class F>
void each_piece(int32_t threads, const int64_t* splits, int64_t taps, const F& f) {
  Buffer<int64_t> first(taps + 1);
  for (int64_t t = 0; t < taps; ++t) first[t] = ceil_div(splits[t + 1] - splits[t], kPiece);
  const int64_t pieces = prefix_sums(first.data(), taps);
  first[taps] = pieces;
  parallel_for(threads, pieces, [&](int64_t i) {
    const int64_t t = std::upper_bound(first.data(), first.data() + taps + 1, i) - first.data() - 1;
    const int64_t begin = splits[t] + (i - first[t]) * kPiece;
    f(t, begin, std::min(splits[t + 1], begin + kPiece));
  });
}

}  // namespace

S3D_API int32_t s3d_pairs_inspect(int32_t threads, const int32_t* src, const int32_t* dst,
                                  const int64_t* splits, int64_t taps, int64_t num_in,
                                  int64_t num_out, int32_t mirrored, int64_t* header) {
  return guarded([&] {
    Buffer<std::atomic<int32_t>> broken(
        taps);  // bit 0: dst does not ascend, bit 1: not (0, 0), (1, 1), ...
    for (int64_t t = 0; t < taps; ++t) broken[t].store(0, std::memory_order_relaxed);
    each_piece(threads, splits, taps, [&](int64_t t, int64_t begin, int64_t end) {
      bool down = false, moved = splits[t + 1] - splits[t] != num_out || num_in != num_out;
      for (int64_t p = std::max(begin, splits[t] + 1); p < end; ++p) down |= dst[p] < dst[p - 1];
      for (int64_t p = begin; p < end && !moved; ++p)
        moved = src[p] != p - splits[t] || dst[p] != src[p];
      broken[t].fetch_or((down ? 1 : 0) | (moved ? 2 : 0), std::memory_order_relaxed);
    });
    bool sorted = true;
    int64_t identity = -1;
    for (int64_t t = 0; t < taps; ++t) {
      const int32_t b = broken[t].load(std::memory_order_relaxed);
      sorted &= (b & 1) == 0;
      if (identity < 0 && splits[t + 1] > splits[t] && (b & 2) == 0) identity = t;
    }
    int64_t flags = sorted ? int64_t(kSorted) : 0;
    // Rows are distinct where the centre tap is the identity: only then is the mirror exact.
    if (!sorted && mirrored && identity == taps / 2) {
      bool up = true;
      for (int64_t t = 0; t < taps && up; ++t)
        for (int64_t p = splits[t] + 1; p < splits[t + 1] && up; ++p) up = src[p] >= src[p - 1];
      if (up) flags |= kMirror;
    }
    if (identity < 0 && splits[taps] == num_out) {
      Buffer<uint8_t> seen(num_out);
      clear_bytes(seen.data(), num_out);
      bool disjoint = true;
      for (int64_t p = 0; p < num_out && disjoint; ++p) {
        disjoint = !seen[dst[p]];
        seen[dst[p]] = 1;
      }
      if (disjoint) flags |= kDisjoint;
    }
    header[0] = flags;
    header[1] = identity;
  });
}

S3D_API int32_t s3d_pairs_sort(int32_t threads, const int32_t* src, const int32_t* dst,
                               const int64_t* splits, int64_t taps, int64_t num_out,
                               int32_t* sorted_src, int32_t* sorted_dst) {
  return guarded([&] {
    parallel_for(threads, taps, [&](int64_t t) {
      const int64_t b = splits[t], n = splits[t + 1] - b;
      if (n == 0) return;
      Buffer<int32_t> spare_src(n), spare_dst(n);
      memcpy(sorted_src + b, src + b, static_cast<size_t>(n) * 4);
      memcpy(sorted_dst + b, dst + b, static_cast<size_t>(n) * 4);
      stable_sort_pairs(sorted_dst + b, sorted_src + b, spare_dst.data(), spare_src.data(), n,
                        num_out);
    });
  });
}
