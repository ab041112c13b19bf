// The coordinate table: open addressing, 32-bit slots that hold the owner row of a coordinate, and
// a bit filter in front (most look-ups of a sparse scene miss, and the filter answers them from
// cache). Keys stay in the coordinate rows; the bits that a row number leaves free hold a part of
// the key's hash. A tensor holds: 16 words of header, the slots, the filter.
//
// Neighbours lie together: 512 cells of a block share one cache line of the filter, and the 8 cells
// of a small block a group of slots. A scene larger than the caches then costs about one read
// of memory for a row and not one for each look-up.
#pragma once

#include <atomic>

#include "common.h"
#include "thread_pool.h"

namespace s3d {

constexpr uint32_t kEmpty = ~0u;
constexpr int64_t kHeaderWords = 16;  // word 0: some coordinate occurs in more than one row
constexpr int kLineBits = 9;          // log2 of the cells of a filter's line
constexpr uint32_t kGroup = 8;        // slots of a group; a key that finds none goes a group on

inline int table_bits(int64_t n) { return std::min(32, std::max(6, log2_ceil(n) + 1)); }
inline int filter_bits(int64_t n) { return std::min(32, std::max(kLineBits, log2_ceil(n) + 6)); }
inline int64_t table_words(int64_t n) {
  return kHeaderWords + (int64_t(1) << table_bits(n)) + (int64_t(1) << (filter_bits(n) - 5));
}

constexpr uint32_t kFactor[5] = {0x9E3779B1u, 0x85EBCA6Bu, 0xC2B2AE35u, 0x27D4EB2Fu, 0x165667B1u};
template <int W, class I>
inline uint32_t linear_hash(const I* c) {
  uint32_t h = 0;
  for (int a = 0; a < W; ++a) h += static_cast<uint32_t>(c[a]) * kFactor[a];
  return h;
}
inline uint32_t mix_hash(uint32_t h) { return (h ^ (h >> 15)) * 0x2C1B3C6Du; }

// log2 of the cells along each axis, of a line of the filter and of a group of slots.
template <int W>
struct Blocks;
template <>
struct Blocks<2> {
  static constexpr int line[1] = {9}, group[1] = {3};
};
template <>
struct Blocks<3> {
  static constexpr int line[2] = {4, 5}, group[2] = {1, 2};
};
template <>
struct Blocks<4> {
  static constexpr int line[3] = {3, 3, 3}, group[3] = {1, 1, 1};
};
template <>
struct Blocks<5> {
  static constexpr int line[4] = {2, 2, 2, 3}, group[4] = {0, 1, 1, 1};
};

// An axis's share of a filter word: the block's hash above, the cell in its line below. Shares are
// added, so that a neighbour along one axis costs one addition.
struct LineAxis {
  uint32_t factor = 0;
  int shift = 0, place = 0;
};
template <int W>
inline LineAxis line_axis(int axis) {
  int place = kLineBits;
  for (int a = 0; a <= axis; ++a) place -= Blocks<W>::line[a];
  return {kFactor[axis + 1], Blocks<W>::line[axis], place};
}
inline uint32_t line_share(const LineAxis& a, uint32_t c) {
  const auto block = static_cast<uint32_t>(static_cast<int32_t>(c) >> a.shift);
  return (block * a.factor << kLineBits) + ((c & ((1u << a.shift) - 1)) << a.place);
}
inline uint32_t line_batch(uint32_t batch) { return batch * kFactor[0] << kLineBits; }
// The bit of a filter word in a filter of 2^bits bits; kernels_*.cpp compute the same. Blocks that
// meet in a line have their cells in other places: sites may all lie on multiples of a stride.
inline uint64_t line_bit(uint32_t word, int bits) {
  const uint32_t v = word >> kLineBits, m = (v ^ (v >> 11)) * 0x2C1B3C6Du;
  const uint64_t line = uint64_t(m) << (bits - kLineBits) >> 32;
  return line << kLineBits | ((word ^ m) & ((1u << kLineBits) - 1));
}

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
        row_mask_(static_cast<uint32_t>((uint64_t(1) << log2_ceil(n + 1)) - 1)),
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
      Hashed ahead[2][kAhead];  // the rows at work and the next ones, whose memory is asked for
      const int64_t begin = c * kChunk, end = std::min(n_, begin + kChunk);
      const auto hash = [&](int64_t i) {
        Hashed* to = ahead[(i - begin) / kAhead & 1];
        for (const int64_t e = std::min(end, i + kAhead); i < e; ++i, ++to) {
          *to = {key_of(row(i)), filter_bit(row(i))};
          __builtin_prefetch(slots_ + to->key.home, 1);
          __builtin_prefetch(filter_ + (to->bit >> 5), 1);
        }
      };
      hash(begin);
      for (int64_t i = begin; i < end; i += kAhead) {
        if (i + kAhead < end) hash(i + kAhead);
        const Hashed* own = ahead[(i - begin) / kAhead & 1];
        for (int64_t k = i, e = std::min(end, i + kAhead); k < e; ++k)
          again |= insert(static_cast<uint32_t>(k), own[k - i]);
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
  int bits() const { return bits_; }
  uint32_t tag_mask() const { return ~row_mask_; }

  struct Key {
    uint32_t home, tag;  // the first slot to look at; hash bits where a slot has them, else 0
  };
  Key key_of(const int32_t* c) const {  // kernels.inc computes the same
    uint32_t h = static_cast<uint32_t>(c[0]) * kFactor[0], cell = 0;
    for (int a = 0; a < W - 1; ++a) {
      constexpr auto& bits = Blocks<W>::group;
      h += static_cast<uint32_t>(c[a + 1] >> bits[a]) * kFactor[a + 1];
      cell = cell << bits[a] | (static_cast<uint32_t>(c[a + 1]) & ((1u << bits[a]) - 1));
    }
    h = mix_hash(h);
    // Cells of different groups that meet must not meet cell by cell.
    constexpr uint32_t kCells = kGroup - 1;
    return {((h >> (32 - bits_)) & ~kCells) | ((cell ^ h) & kCells),
            ((h + cell * kFactor[1]) * kFactor[0]) & ~row_mask_};
  }
  bool maybe(const int32_t* c) const {
    const uint64_t f = filter_bit(c);
    return filter_[f >> 5] >> (f & 31) & 1;
  }
  // Ask for the lines of the filter where rows [i, i + m) lie, of a filter beyond the second cache.
  S3D_INLINE void fetch_filter(int64_t i, int64_t m) const {
    if (filter_bits_ < 23) return;
    for (int64_t k = i; k < i + m; ++k) __builtin_prefetch(filter_ + (filter_bit(row(k)) >> 5));
  }
  // Ask for the memory that a probe will read: its slot, then the row that the slot names.
  S3D_INLINE void fetch_slot(const Key& k) const { __builtin_prefetch(slots_ + k.home); }
  S3D_INLINE void fetch_row(const Key& k) const {
    const uint32_t v = slots_[k.home];
    if (v != kEmpty) __builtin_prefetch(row(v & row_mask_));
  }
  // The lowest row that holds c, or -1; k is key_of(c). Tags ascend from a key's home to the key.
  int32_t probe(const Key& k, const int32_t* c) const {
    for (uint32_t s = k.home;; s = next(s)) {
      const uint32_t v = slots_[s], tag = v & ~row_mask_;
      if (tag < k.tag) continue;
      if (tag > k.tag || v == kEmpty) return -1;
      if (same_row<W>(row(v & row_mask_), c)) return static_cast<int32_t>(v & row_mask_);
    }
  }
  int32_t probe(const int32_t* c) const { return probe(key_of(c), c); }
  int32_t find(const int32_t* c) const { return maybe(c) ? probe(c) : -1; }

 private:
  static constexpr int64_t kAhead = 16;  // rows

  struct Hashed {
    Key key;
    uint64_t bit;  // of the filter
  };
  uint64_t filter_bit(const int32_t* c) const {
    uint32_t word = line_batch(static_cast<uint32_t>(c[0]));
    for (int a = 0; a < W - 1; ++a)
      word += line_share(line_axis<W>(a), static_cast<uint32_t>(c[a + 1]));
    return line_bit(word, filter_bits_);
  }

  // One cycle through all slots: a group on, and from the last group to another place of the first.
  uint32_t next(uint32_t s) const {
    return mask_ - s >= kGroup ? s + kGroup : (s + 1) & (kGroup - 1);
  }

  static std::atomic<uint32_t>& as_atomic(uint32_t* p) {
    static_assert(sizeof(std::atomic<uint32_t>) == 4, "slots are plain words between builds");
    return *reinterpret_cast<std::atomic<uint32_t>*>(p);
  }

  // Below 0, 0 or above: the order of the keys of two slots.
  int compare(uint32_t v, uint32_t held) const {
    const uint32_t tag = v & ~row_mask_, other = held & ~row_mask_;
    if (tag != other) return tag < other ? -1 : 1;
    return compare_rows<W>(row(v & row_mask_), row(held & row_mask_));
  }

  // Ordered linear probing: on its way a smaller key takes the slot and carries the larger one on,
  // so the finished table is the same whatever order the rows came in. Returns whether the
  // coordinate was there before.
  bool insert(uint32_t number, const Hashed& hashed) {
    const uint32_t bit = 1u << (hashed.bit & 31);
    std::atomic<uint32_t>& word = as_atomic(filter_ + (hashed.bit >> 5));
    if (!(word.load(std::memory_order_relaxed) & bit))
      word.fetch_or(bit, std::memory_order_relaxed);
    uint32_t s = hashed.key.home, v = hashed.key.tag | number;
    for (;;) {
      std::atomic<uint32_t>& slot = as_atomic(slots_ + s);
      uint32_t held = slot.load(std::memory_order_relaxed);
      if (held == kEmpty) {
        if (slot.compare_exchange_strong(held, v, std::memory_order_relaxed)) return false;
        continue;
      }
      const int order = compare(v, held);
      if (order == 0) {
        if (v < held && !slot.compare_exchange_strong(held, v, std::memory_order_relaxed)) continue;
        return true;
      }
      if (order < 0) {
        if (!slot.compare_exchange_strong(held, v, std::memory_order_relaxed)) continue;
        v = held;
      }
      s = next(s);
    }
  }

  const int32_t* rows_;
  int64_t n_;
  int bits_, filter_bits_;
  uint32_t mask_, row_mask_;  // of a slot's number; of the row number in a slot
  int32_t* header_;
  uint32_t* slots_;
  uint32_t* filter_;
};

}  // namespace s3d
