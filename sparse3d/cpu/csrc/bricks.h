// An index of 3-D rows for searches of near neighbours: the sites of a brick of 8 x 8 x 8 cells are
// the bits of 8 words, and the rows of its sites lie side by side. Bricks are numbered as rows
// first meet them, so that a scan in its own order works on near memory however large it is, and a
// word answers for 64 cells at once.
#pragma once

#include <atomic>

#include "common.h"

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
  bool build(int32_t threads);

  int32_t brick_of(int64_t row) const { return brick_of_[row]; }
  int cell_of(int64_t row) const { return cell_of_[row]; }    // in its brick, row-major
  uint64_t key(int64_t row) const { return place(row).key; }  // of its brick
  // What a key gains on the way to the brick so many further along each axis, of -1, 0 and 1.
  uint64_t step(int64_t a, int64_t b, int64_t c) const {
    return (uint64_t(a) << shift_[1]) + (uint64_t(b) << shift_[2]) + (uint64_t(c) << shift_[3]);
  }
  S3D_INLINE void fetch(uint64_t key) const {
    __builtin_prefetch(&slots_.words[home(slots_, hash(key))]);
  }
  // 0, which has no sites, where no brick has the key.
  int32_t find(uint64_t key) const {
    const uint64_t h = hash(key);
    for (int64_t s = home(slots_, h);; s = next(slots_, s)) {
      const uint32_t v = slots_.words[s];
      if (v == kFree) return 0;
      if (names(v, h, key)) return static_cast<int32_t>(v & ~tag_mask_);
    }
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
  static constexpr uint32_t kFree = 0;  // brick 0, of no key and no sites

  // Slots of a table, 2^bits of them: a brick, and above it bits of its key's hash.
  struct Slots {
    Buffer<uint32_t> words;
    int bits = 0;
    Slots() = default;
    explicit Slots(int64_t rows);
  };
  // Of a row: the key of its brick, and its cell there.
  struct Place {
    uint64_t key;
    int cell;
  };
  // Numbers of bricks that a part of the rows took for its own, [next, end) of them unused.
  struct Taken {
    int64_t next = 0, end = 0;
  };

  static int64_t home(const Slots& slots, uint64_t hash) {
    return static_cast<int64_t>(hash >> (64 - slots.bits));
  }
  static int64_t next(const Slots& slots, int64_t s) {
    return (s + 1) & ((int64_t(1) << slots.bits) - 1);
  }
  static uint64_t hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15u;
    return (key ^ key >> 32) * 0xD6E8FEB86659FD93u;
  }
  uint32_t tag(uint64_t hash) const { return static_cast<uint32_t>(hash) & tag_mask_; }
  // Whether a slot's brick has the key.
  bool names(uint32_t v, uint64_t hash, uint64_t key) const {
    return ((v & tag_mask_) == tag(hash)) && keys_[v & ~tag_mask_] == key;
  }

  int64_t position(int32_t brick, int plane, int bit) const {
    const uint64_t below = words_[brick][plane] & ((uint64_t(1) << bit) - 1);
    return first_[int64_t(brick) * kSide + plane] + count_bits(below);
  }

  // Extents: a key has a field for the batch and one for each axis, with room for the bricks
  // around. False where they do not fit.
  bool measure(int32_t threads);
  bool scattered() const;  // most rows lie far from those before them
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
  // Each part of the rows makes bricks of its own, in no one's way; then they meet in one table.
  bool enter_parts(int32_t threads, int64_t parts);
  // Rows into their bricks; false where the index does not serve.
  bool enter(Slots& slots, int64_t begin, int64_t end);
  // 0 where there are too many.
  uint32_t find_or_make(Slots& slots, uint64_t key, Taken& taken);
  // A brick into the table, or its sites into the brick of the same key there; false where both
  // hold a site.
  bool join(int64_t brick);
  // Room for the rows of every word, then the rows.
  void number(int32_t threads);

  const int32_t* rows_;
  int64_t n_, most_ = 0;          // bricks that may be made
  std::atomic<int64_t> made_{1};  // that were, brick 0 among them
  int64_t low_[4];                // the least coordinate, a brick lower along the axes
  int shift_[4];                  // of the fields of a key
  uint32_t tag_mask_ = 0;
  Slots slots_;
  Buffer<uint64_t> keys_;  // of bricks
  Buffer<Words> words_;
  Buffer<int32_t> moved_;     // the brick that took a brick's sites; none where there was one part
  Buffer<int32_t> first_;     // [bricks][planes] in row_at_
  Buffer<int32_t> row_at_;    // rows by brick and cell
  Buffer<int32_t> brick_of_;  // of every row
  Buffer<uint16_t> cell_of_;
};

}  // namespace s3d
