// An index of 3-D rows for searches of near neighbours: the sites of a brick of 8 x 8 x 8 cells are
// the bits of 8 words, and the rows of its sites lie side by side. Bricks are numbered as rows first
// meet them, so that a scan in its own order works on near memory however large it is, and a word
// answers for 64 cells at once.
#pragma once

#include <atomic>

#include "common.h"
#include "order.h"
#include "thread_pool.h"

namespace s3d {

inline int count_bits(uint64_t v) {  // without the instruction, which not every x86-64 has
  v -= v >> 1 & 0x5555555555555555u;
  v = (v & 0x3333333333333333u) + (v >> 2 & 0x3333333333333333u);
  v = (v + (v >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
  return static_cast<int>(v * 0x0101010101010101u >> 56);
}

class Bricks {
 public:
  static constexpr int kSide = 8;
  using Words = uint64_t[kSide];  // a word a plane of the first axis; bit 8 * second + third

  Bricks(const int32_t* rows, int64_t n) : rows_(rows), n_(n) {}

  // False where this index does not serve: rows repeat, lie too far apart for keys of 64 bits, or
  // share bricks so seldom that these would take more memory than a hash table.
  bool build(int32_t threads) {
    if (n_ == 0 || !measure(threads)) return false;
    bits_ = std::max(4, log2_ceil(n_));
    most_ = std::min(n_ / 2 + 2, (int64_t(3) << bits_) / 4);
    tag_mask_ = ~static_cast<uint32_t>((uint64_t(1) << log2_ceil(most_ + 1)) - 1);
    slots_ = Buffer<std::atomic<uint32_t>>(int64_t(1) << bits_);
    parallel_for(threads, ceil_div(slots_.size(), kPiece), [&](int64_t i) {
      memset(static_cast<void*>(slots_.data() + i * kPiece), 0,
             4 * static_cast<size_t>(std::min(kPiece, slots_.size() - i * kPiece)));
    });
    keys_ = Buffer<uint64_t>(most_);
    words_ = Buffer<Words>(most_);
    brick_of_ = Buffer<int32_t>(n_);
    cell_of_ = Buffer<uint16_t>(n_);
    memset(words_[0], 0, sizeof(Words));
    keys_[0] = ~uint64_t(0);
    parallel_for(threads, chunk_count(n_), [&](int64_t c) {
      if (!good_.load(std::memory_order_relaxed)) return;
      if (threads > 1 ? !enter<true>(c) : !enter<false>(c))
        good_.store(false, std::memory_order_relaxed);
    });
    if (!good_.load(std::memory_order_relaxed)) return false;
    number(threads);
    return true;
  }

  int64_t rows() const { return n_; }
  int32_t brick_of(int64_t row) const { return brick_of_[row]; }
  int cell_of(int64_t row) const { return cell_of_[row]; }
  uint64_t key(int32_t brick) const { return keys_[brick]; }
  // What a key gains on the way to the brick so many further along each axis, of -1, 0 and 1.
  uint64_t step(int64_t a, int64_t b, int64_t c) const {
    return (uint64_t(a) << shift_[1]) + (uint64_t(b) << shift_[2]) + (uint64_t(c) << shift_[3]);
  }
  S3D_INLINE void fetch(uint64_t key) const { __builtin_prefetch(&slots_[home(hash(key))]); }
  S3D_INLINE void fetch_named(uint64_t key) const {
    const uint32_t v = slots_[home(hash(key))].load(std::memory_order_relaxed) & ~tag_mask_;
    __builtin_prefetch(&keys_[v]);
    __builtin_prefetch(words_[v]);
  }
  // False only where no brick has the key.
  bool some(uint64_t key) const {
    return slots_[home(hash(key))].load(std::memory_order_relaxed) != kFree;
  }
  // 0, which has no sites, where no brick has the key; where `known`, the given number.
  int32_t find(uint64_t key, int32_t number, bool known) const {
    const uint64_t h = hash(key);
    int64_t s = home(h);
    uint32_t v = slots_[s].load(std::memory_order_relaxed);
    while (!(known | names(v, h, key))) {
      if (v == kFree) return 0;
      s = next(s);
      v = slots_[s].load(std::memory_order_relaxed);
    }
    return known ? number : static_cast<int32_t>(v & ~tag_mask_);
  }
  S3D_INLINE void fetch_words(int32_t brick) const {
    __builtin_prefetch(words_[brick]);
    __builtin_prefetch(&first_[int64_t(brick) * kSide]);
  }
  const Words& words(int32_t brick) const { return words_[brick]; }
  // The row of a site: bit `bit` of word `plane`.
  int32_t row(int32_t brick, int plane, int bit) const {
    return row_at_[position(brick, plane, bit)];
  }

 private:
  static constexpr int kWord = 64;
  static constexpr uint32_t kFree = 0;  // brick 0, of no key and no sites
  static constexpr int64_t kPiece = 1 << 16;

  // Of a row: the key of its brick, and its cell there, the third axis fastest.
  struct Place {
    uint64_t key;
    int cell;
  };

  Place place(int64_t row) const {
    const int32_t* c = rows_ + row * 4;
    Place p{uint64_t(int64_t(c[0]) - low_[0]) << shift_[0], 0};
    for (int a = 0; a < 3; ++a) {
      const uint64_t at = uint64_t(int64_t(c[a + 1]) - low_[a + 1]);
      p.key += at / kSide << shift_[a + 1];
      p.cell = p.cell * kSide + static_cast<int>(at % kSide);
    }
    return p;
  }

  int64_t position(int32_t brick, int plane, int bit) const {
    const uint64_t below = words_[brick][plane] & ((uint64_t(1) << bit) - 1);
    return first_[int64_t(brick) * kSide + plane] + count_bits(below);
  }

  static uint64_t hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15u;
    return (key ^ key >> 32) * 0xD6E8FEB86659FD93u;
  }
  int64_t home(uint64_t hash) const { return static_cast<int64_t>(hash >> (64 - bits_)); }
  uint32_t tag(uint64_t hash) const { return static_cast<uint32_t>(hash) & tag_mask_; }
  int64_t next(int64_t s) const { return (s + 1) & ((int64_t(1) << bits_) - 1); }
  // Whether a slot's brick has the key.
  bool names(uint32_t v, uint64_t hash, uint64_t key) const {
    return ((v & tag_mask_) == tag(hash)) && keys_[v & ~tag_mask_] == key;
  }

  // Extents: a key has a field for the batch and one for each axis, with room for the bricks
  // around. False where they do not fit.
  bool measure(int32_t threads) {
    const int64_t chunks = chunk_count(n_);
    Buffer<int32_t> ends(chunks * 8);
    parallel_for(threads, chunks, [&](int64_t c) {
      const int32_t* row = rows_ + c * kChunk * 4;
      int32_t low[4], high[4];
      for (int a = 0; a < 4; ++a) low[a] = high[a] = row[a];
      for (const int32_t* end = rows_ + std::min(n_, (c + 1) * kChunk) * 4; row < end; row += 4)
        for (int a = 0; a < 4; ++a) {
          low[a] = std::min(low[a], row[a]);
          high[a] = std::max(high[a], row[a]);
        }
      for (int a = 0; a < 4; ++a) {
        ends[c * 8 + a] = low[a];
        ends[c * 8 + 4 + a] = high[a];
      }
    });
    int bits = 0;
    for (int a = 3; a >= 0; --a) {
      int64_t low = ends[a], high = ends[4 + a];
      for (int64_t c = 1; c < chunks; ++c) {
        low = std::min<int64_t>(low, ends[c * 8 + a]);
        high = std::max<int64_t>(high, ends[c * 8 + 4 + a]);
      }
      low_[a] = a ? low - kSide : low;
      shift_[a] = bits;
      bits += log2_ceil(a ? (high - low_[a]) / kSide + 2 : high - low + 1);
    }
    return bits < 64;
  }

  // The rows of a chunk into their bricks; false where the index does not serve.
  template <bool kShared>
  bool enter(int64_t chunk) {
    constexpr int64_t kRows = 64;  // whose slots are asked for before they are read
    Place places[kRows];
    uint64_t last_key = ~uint64_t(0);
    uint32_t brick = 0, spare = 0;
    for (int64_t row = chunk * kChunk, end = std::min(n_, row + kChunk); row < end; row += kRows) {
      const int64_t m = std::min(kRows, end - row);
      for (int64_t r = 0; r < m; ++r) {
        places[r] = place(row + r);
        fetch(places[r].key);
      }
      for (int64_t r = 0; r < m; ++r) fetch_named(places[r].key);
      for (int64_t r = 0; r < m; ++r) {
        const Place& p = places[r];
        if (p.key != last_key) {
          brick = find_or_make<kShared>(p.key, spare);
          if (brick == 0) return false;
          last_key = p.key;
        }
        brick_of_[row + r] = static_cast<int32_t>(brick);
        cell_of_[row + r] = static_cast<uint16_t>(p.cell);
        const uint64_t bit = uint64_t(1) << p.cell % kWord;
        uint64_t& word = words_[brick][p.cell / kWord];
        uint64_t held;
        if (kShared) {
          static_assert(sizeof(std::atomic<uint64_t>) == 8, "words are plain between builds");
          held = reinterpret_cast<std::atomic<uint64_t>&>(word).fetch_or(bit,
                                                                         std::memory_order_relaxed);
        } else {
          held = word;
          word |= bit;
        }
        if (held & bit) return false;
      }
    }
    return true;
  }

  // 0 where there are too many. A brick that another thread made first is kept as a spare; one left
  // over has no sites.
  template <bool kShared>
  uint32_t find_or_make(uint64_t key, uint32_t& spare) {
    const uint64_t h = hash(key);
    for (int64_t s = home(h);; s = next(s)) {
      std::atomic<uint32_t>& slot = slots_[s];
      uint32_t v = slot.load(std::memory_order_acquire);
      if (v == kFree) {
        if (spare == 0) {
          const int64_t made = kShared ? made_.fetch_add(1, std::memory_order_relaxed)
                                       : made_.load(std::memory_order_relaxed);
          if (made >= most_) return 0;
          if (!kShared) made_.store(made + 1, std::memory_order_relaxed);
          spare = static_cast<uint32_t>(made);
          memset(words_[spare], 0, sizeof(Words));
        }
        keys_[spare] = key;
        const uint32_t mine = tag(h) | spare;
        if (!kShared) {
          slot.store(mine, std::memory_order_relaxed);
        } else if (!slot.compare_exchange_strong(v, mine, std::memory_order_acq_rel)) {
          if (names(v, h, key)) return v & ~tag_mask_;
          continue;
        }
        const uint32_t brick = spare;
        spare = 0;
        return brick;
      }
      if (names(v, h, key)) return v & ~tag_mask_;
    }
  }

  // Room for the rows of every word, then the rows.
  void number(int32_t threads) {
    const int64_t bricks = std::min(made_.load(std::memory_order_relaxed), most_);
    first_ = Buffer<int32_t>(bricks * kSide);
    row_at_ = Buffer<int32_t>(n_);
    Buffer<int64_t> start(chunk_count(bricks));
    parallel_for(threads, start.size(), [&](int64_t c) {
      int32_t rows = 0;
      for (int64_t b = c * kChunk, e = std::min(bricks, b + kChunk); b < e; ++b)
        for (int plane = 0; plane < kSide; ++plane) {
          first_[b * kSide + plane] = rows;
          rows += count_bits(words_[b][plane]);
        }
      start[c] = rows;
    });
    prefix_sums(start.data(), start.size());
    parallel_for(threads, start.size(), [&](int64_t c) {
      const auto by = static_cast<int32_t>(start[c]);
      for (int64_t i = c * kChunk * kSide, e = std::min(bricks, (c + 1) * kChunk) * kSide; i < e; ++i)
        first_[i] += by;
    });
    parallel_for(threads, chunk_count(n_), [&](int64_t c) {
      constexpr int64_t kAhead = 16;
      for (int64_t i = c * kChunk, e = std::min(n_, i + kChunk); i < e; ++i) {
        fetch_words(brick_of_[std::min(i + kAhead, e - 1)]);
        row_at_[position(brick_of_[i], cell_of_[i] / kWord, cell_of_[i] % kWord)] =
            static_cast<int32_t>(i);
      }
    });
  }

  const int32_t* rows_;
  int64_t n_, most_ = 0;
  int64_t low_[4];  // the least coordinate, a brick lower along the axes
  int shift_[4];    // of the fields of a key
  int bits_ = 0;    // log2 of the slots
  uint32_t tag_mask_ = 0;
  std::atomic<bool> good_{true};
  std::atomic<int64_t> made_{1};
  Buffer<std::atomic<uint32_t>> slots_;  // a brick, and above it bits of its key's hash
  Buffer<uint64_t> keys_;                // of bricks
  Buffer<Words> words_;
  Buffer<int32_t> first_;     // [bricks][planes] in row_at_
  Buffer<int32_t> row_at_;    // rows by brick and cell
  Buffer<int32_t> brick_of_;  // of every row
  Buffer<uint16_t> cell_of_;
};

}  // namespace s3d
