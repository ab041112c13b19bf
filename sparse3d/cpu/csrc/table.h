// The coordinate table: open addressing, 32-bit slots that hold the owner row of a coordinate, and
// a bit filter in front (most look-ups of a sparse scene miss, and the filter answers them from
// cache). Keys stay in the coordinate rows. A tensor holds: 16 words of header, the slots, the
// filter.
#pragma once

#include <atomic>

#include "common.h"
#include "thread_pool.h"

namespace s3d {

constexpr uint32_t kEmpty = ~0u;
constexpr int64_t kHeaderWords = 16;  // word 0: some coordinate occurs in more than one row

inline int table_bits(int64_t n) { return std::min(32, std::max(6, log2_ceil(n) + 1)); }
inline int filter_bits(int64_t n) { return std::min(32, std::max(9, log2_ceil(n) + 6)); }
inline int64_t table_words(int64_t n) {
  return kHeaderWords + (int64_t(1) << table_bits(n)) + (int64_t(1) << (filter_bits(n) - 5));
}

// The hash is linear in the coordinate before the final mix: a neighbour costs one addition.
constexpr uint32_t kFactor[5] = {0x9E3779B1u, 0x85EBCA6Bu, 0xC2B2AE35u, 0x27D4EB2Fu, 0x165667B1u};
template <int W, class I>
inline uint32_t linear_hash(const I* c) {
  uint32_t h = 0;
  for (int a = 0; a < W; ++a) h += static_cast<uint32_t>(c[a]) * kFactor[a];
  return h;
}
inline uint32_t mix_hash(uint32_t h) { return (h ^ (h >> 15)) * 0x2C1B3C6Du; }

template <int W>
inline bool same_row(const int32_t* p, const int32_t* q) {
  uint32_t d = 0;
  for (int a = 0; a < W; ++a) d |= static_cast<uint32_t>(p[a] ^ q[a]);
  return d == 0;
}
template <int W>
inline int compare_rows(const int32_t* p, const int32_t* q) {
  for (int a = 0; a < W; ++a)
    if (p[a] != q[a]) return p[a] < q[a] ? -1 : 1;
  return 0;
}

template <int W>
class Table {
 public:
  // A view of memory that build() filled, or will fill, for these rows.
  Table(const int32_t* rows, int64_t n, int32_t* words)
      : rows_(rows),
        n_(n),
        bits_(table_bits(n)),
        filter_bits_(s3d::filter_bits(n)),
        mask_(static_cast<uint32_t>((uint64_t(1) << bits_) - 1)),
        header_(words),
        slots_(reinterpret_cast<uint32_t*>(words + kHeaderWords)),
        filter_(slots_ + (int64_t(1) << bits_)) {}

  void build(int32_t threads) {
    const int64_t slots = int64_t(1) << bits_, words = int64_t(1) << (filter_bits_ - 5);
    memset(header_, 0, kHeaderWords * 4);
    const int64_t piece = 1 << 16, pieces = ceil_div(slots, piece),
                  filter_pieces = ceil_div(words, piece);
    parallel_for(threads, pieces + filter_pieces, [&](int64_t i) {
      if (i < pieces)
        memset(slots_ + i * piece, 0xff, 4 * std::min(piece, slots - i * piece));
      else
        memset(filter_ + (i - pieces) * piece, 0,
               4 * std::min(piece, words - (i - pieces) * piece));
    });
    parallel_for(threads, chunk_count(n_), [&](int64_t c) {
      bool again = false;
      for (int64_t i = c * kChunk, e = std::min(n_, i + kChunk); i < e; ++i) {
        if (i + kAhead < e) fetch(hash_of(i + kAhead));
        if (i + kAhead / 2 < e) fetch_held(hash_of(i + kAhead / 2));
        again |= insert(static_cast<uint32_t>(i));
      }
      if (again)
        as_atomic(reinterpret_cast<uint32_t*>(header_)).store(1, std::memory_order_relaxed);
    });
  }

  bool duplicates() const { return header_[0] != 0; }
  int64_t rows() const { return n_; }
  const int32_t* row(int64_t i) const { return rows_ + i * W; }
  const uint32_t* filter() const { return filter_; }
  int filter_bits() const { return filter_bits_; }

  bool maybe(uint32_t hash) const {
    const uint32_t f = hash >> (32 - filter_bits_);
    return filter_[f >> 5] >> (f & 31) & 1;
  }
  // Ask for the memory that a probe will read: its slot, then the row that the slot names.
  void fetch_slot(uint32_t hash) const { __builtin_prefetch(slots_ + (hash >> (32 - bits_))); }
  void fetch_row(uint32_t hash) const {
    const uint32_t v = slots_[hash >> (32 - bits_)];
    if (v != kEmpty) __builtin_prefetch(row(v));
  }
  // The lowest row that holds key, or -1. hash is mix_hash(linear_hash(key)).
  int32_t probe(uint32_t hash, const int32_t* key) const {
    for (uint32_t s = hash >> (32 - bits_);; s = (s + 1) & mask_) {
      const uint32_t v = slots_[s];
      if (v == kEmpty) return -1;
      if (same_row<W>(row(v), key)) return static_cast<int32_t>(v);
    }
  }
  int32_t find(const int32_t* key) const {
    const uint32_t h = mix_hash(linear_hash<W>(key));
    return maybe(h) ? probe(h, key) : -1;
  }

 private:
  static constexpr int64_t kAhead = 16;  // rows

  void fetch(uint32_t hash) const {
    __builtin_prefetch(slots_ + (hash >> (32 - bits_)), 1);
    __builtin_prefetch(filter_ + (hash >> (32 - filter_bits_) >> 5), 1);
  }

  // The row that an insertion will be compared with.
  void fetch_held(uint32_t hash) const {
    const uint32_t v = as_atomic(slots_ + (hash >> (32 - bits_))).load(std::memory_order_relaxed);
    if (v != kEmpty) __builtin_prefetch(row(v));
  }
  uint32_t hash_of(int64_t i) const { return mix_hash(linear_hash<W>(row(i))); }

  static std::atomic<uint32_t>& as_atomic(uint32_t* p) {
    static_assert(sizeof(std::atomic<uint32_t>) == 4, "slots are plain words between builds");
    return *reinterpret_cast<std::atomic<uint32_t>*>(p);
  }

  // Ordered linear probing: on its way a smaller coordinate takes the slot and carries the larger
  // one on, so the finished table is the same whatever order the rows came in. Returns whether the
  // coordinate was there before.
  bool insert(uint32_t v) {
    const uint32_t hash = mix_hash(linear_hash<W>(row(v)));
    const uint32_t f = hash >> (32 - filter_bits_), bit = 1u << (f & 31);
    std::atomic<uint32_t>& word = as_atomic(filter_ + (f >> 5));
    if (!(word.load(std::memory_order_relaxed) & bit))
      word.fetch_or(bit, std::memory_order_relaxed);
    uint32_t s = hash >> (32 - bits_);
    for (;;) {
      std::atomic<uint32_t>& slot = as_atomic(slots_ + s);
      uint32_t held = slot.load(std::memory_order_relaxed);
      if (held == kEmpty) {
        if (slot.compare_exchange_strong(held, v, std::memory_order_relaxed)) return false;
        continue;
      }
      const int order = compare_rows<W>(row(v), row(held));
      if (order == 0) {
        if (v < held && !slot.compare_exchange_strong(held, v, std::memory_order_relaxed)) continue;
        return true;
      }
      if (order < 0) {
        if (!slot.compare_exchange_strong(held, v, std::memory_order_relaxed)) continue;
        v = held;
      }
      s = (s + 1) & mask_;
    }
  }

  const int32_t* rows_;
  int64_t n_;
  int bits_, filter_bits_;
  uint32_t mask_;
  int32_t* header_;
  uint32_t* slots_;
  uint32_t* filter_;
};

}  // namespace s3d
