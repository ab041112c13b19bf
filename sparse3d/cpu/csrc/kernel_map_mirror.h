// The second half of a submanifold map: pairs of the taps that mirror those searched.
#pragma once

#include <atomic>
#include <vector>

#include "kernel_map.h"

namespace s3d {

// What chunks of rows found, for the taps that mirror theirs: sorted by groups of chunks of the
// rows that the mirrored pairs lead to. A group then places its entries in a table that fits a
// cache, where one table of all rows would be written at random.
class Mirror {
  static constexpr int kRowBits = 12;
  static_assert(kChunk == 1 << kRowBits, "a row in its chunk");

 public:
  static constexpr int64_t kMostTaps = int64_t(1) << (32 - kRowBits);
  Mirror(int64_t rows, int64_t taps)
      : rows_(rows),
        taps_(taps),
        chunks_(chunk_count(rows)),
        shift_(log2_ceil(ceil_div(chunks_, kGroups))),
        groups_(ceil_div(chunks_, int64_t(1) << shift_)),
        entries_(static_cast<size_t>(chunks_)),
        first_(chunks_ * (groups_ + 1)) {
    slabs_.reserve(3 * rows);
  }
  int64_t groups() const { return groups_; }

  // Pairs of chunk c, all src and all dst tap by tap; adds the mirrored ones to counts[tap][chunk].
  void note(int64_t c, const int64_t* count, const int32_t* src, const int32_t* dst,
            std::atomic<int64_t>* counts) {
    int64_t all = 0;
    for (int64_t t = 0; t < taps_; ++t) all += count[t];
    int32_t* first = first_.data() + c * (groups_ + 1);
    std::fill(first, first + groups_ + 1, 0);
    for (int64_t t = 0, p = 0; t < taps_; ++t)
      for (const int64_t end = p + count[t]; p < end;) {  // runs that lead to one chunk
        const int64_t begin = p;
        const int32_t to = src[p] / kChunk;
        while (p < end && src[p] / kChunk == to) ++p;
        first[(to >> shift_) + 1] += static_cast<int32_t>(p - begin);
        counts[(taps_ - 1 - t) * chunks_ + to].fetch_add(p - begin, std::memory_order_relaxed);
      }
    for (int64_t g = 0; g < groups_; ++g) first[g + 1] += first[g];
    Buffer<int32_t> next(groups_);
    std::copy(first, first + groups_, next.data());
    Entry* to = reinterpret_cast<Entry*>(slabs_.take(2 * all));
    entries_[static_cast<size_t>(c)] = to;
    for (int64_t t = 0, p = 0; t < taps_; ++t)
      for (const int64_t end = p + count[t]; p < end; ++p)
        to[next[src[p] / kChunk >> shift_]++] = {
            static_cast<uint32_t>(t << kRowBits | (dst[p] - c * kChunk)), src[p]};
  }

  // The mirrored pairs of every chunk of group g; start[tap][chunk] is where they belong.
  void place(int64_t g, const Kernels& kernels, const int64_t* start, int32_t* to_src,
             int32_t* to_dst) const {
    const int64_t first = g << shift_, last = std::min(chunks_, (g + 1) << shift_),
                  begin = first * kChunk, rows = std::min(rows_, last * kChunk) - begin;
    Buffer<int32_t> near(taps_ * rows);
    if (near.size()) memset(near.data(), 0xff, static_cast<size_t>(near.size()) * 4);
    for (int64_t c = 0; c < chunks_; ++c) {
      const int32_t* range = first_.data() + c * (groups_ + 1) + g;
      const Entry* from = entries_[static_cast<size_t>(c)];
      for (int64_t p = range[0]; p < range[1]; ++p) {
        const int64_t tap = taps_ - 1 - (from[p].tap_row >> kRowBits);
        near[tap * rows + from[p].dst - begin] =
            static_cast<int32_t>(c * kChunk + (from[p].tap_row & ((1u << kRowBits) - 1)));
      }
    }
    for (int64_t t = 0; t < taps_; ++t)
      for (int64_t c = first; c < last; ++c) {
        const int64_t at = c * kChunk - begin, to = start[t * chunks_ + c];
        kernels.compact(near.data() + t * rows + at, std::min(kChunk, rows - at),
                        static_cast<int32_t>(c * kChunk), to_src + to, to_dst + to);
      }
  }

 private:
  static constexpr int64_t kGroups = 256;
  struct Entry {
    uint32_t tap_row;  // the searched tap, and the mirrored pair's src in its chunk
    int32_t dst;
  };

  int64_t rows_, taps_, chunks_;
  int shift_;  // log2 of the chunks of a group
  int64_t groups_;
  Slabs slabs_;
  std::vector<const Entry*> entries_;
  Buffer<int32_t> first_;  // [chunks][groups + 1] in a chunk's entries
};

}  // namespace s3d
