// The searched half of a submanifold map from bricks: for each row, the sites of a word that its
// taps reach are one mask of that word. Blocks of rows go through the steps together, so that a step
// is a short loop with few branches to guess, and memory is asked for a block before it is read.
#pragma once

#include <vector>

#include "bricks.h"
#include "kernel_map.h"

namespace s3d {

class BrickSearch {
  static constexpr int kSide = Bricks::kSide, kCells = kSide * kSide;
  static constexpr int kAround = 18, kOwn = 13;  // bricks before and beside; (first, second, third)
  static constexpr int kRows = 64, kListed = 8;  // of a block; entries of a list copied at a time

 public:
  // A kernel reaches no further than the next brick.
  static bool serves(const Geometry& g) {
    if (g.ndim != 3) return false;
    for (int a = 0; a < 3; ++a)
      if (g.padding[a] > kSide) return false;
    return true;
  }

  BrickSearch(const Bricks& bricks, const Geometry& g) : bricks_(bricks), g_(g) {
    for (int kind = 0; kind < 2; ++kind)
      for (int cell = 0; cell < kCells; ++cell)
        for (int64_t t = 0, taps = g.kernel[1] * g.kernel[2]; t < (kind ? taps / 2 : taps); ++t) {
          const int64_t by[2] = {t / g.kernel[2] * g.dilation[1] - g.padding[1],
                                 t % g.kernel[2] * g.dilation[2] - g.padding[2]};
          const int64_t at[2] = {cell / kSide + by[0] + kSide, cell % kSide + by[1] + kSide};
          reached_[kind][at[0] / kSide * 3 + at[1] / kSide][cell] |=
              uint64_t(1) << (at[0] % kSide * kSide + at[1] % kSide);
          tap_of_[by[0] + kSide][by[1] + kSide] = static_cast<int32_t>(t);
        }
    for (int brick = 0; brick < kAround; ++brick)
      step_[brick] = bricks.step(brick / 9 - 1, brick / 3 % 3 - 1, brick % 3 - 1);
    planes_ = static_cast<int>(g.kernel[0] / 2) + 1;
    for (int t = 0; t < planes_; ++t) {
      offset_[t] = static_cast<int>(t * g.dilation[0] - g.padding[0]);
      first_tap_[t] = static_cast<int32_t>(t * g.kernel[1] * g.kernel[2]);
    }
    list_bricks();
  }

  // Calls found(tap, row, neighbour) for every tap before the centre, in the order of rows.
  template <class Found>
  void walk(int64_t begin, int64_t end, const Found& found) const {
    Block blocks[3], *fresh = blocks, *asked = blocks + 1, *known = blocks + 2;
    for (int64_t row = begin; row < end + 2 * kRows; row += kRows) {
      list(*fresh, row, static_cast<int>(std::max(int64_t(0), std::min<int64_t>(kRows, end - row))));
      look_up(*asked);
      match(*known, found);
      std::swap(fresh, known);
      std::swap(asked, known);
    }
  }

 private:
  struct Block {
    int64_t row = 0;
    int rows = 0, wanted = 0, there = 0;
    uint64_t key[kRows];
    uint16_t cell[kRows];
    // Neighbouring bricks that rows of the block reach, then those that are there, by row.
    uint8_t row_of[kRows * kAround + kListed], brick_of[kRows * kAround + kListed];
    int32_t number[kRows * kAround];
  };
  // Which bricks a row of a cell reaches, its own among them.
  void list_bricks() {
    uint32_t reach[kSide * kCells] = {}, most = 0;
    for (int cell = 0; cell < kSide * kCells; ++cell) {
      for (int t = 0; t < planes_; ++t)
        for (int k = 0; k < 9; ++k)
          if (reached_[t == planes_ - 1][k][cell % kCells])
            reach[cell] |= 1u << (k + (cell / kCells + offset_[t] < 0 ? 0 : 9));
      listed_[cell] = static_cast<uint8_t>(count_bits(reach[cell]));
      most = std::max<uint32_t>(most, listed_[cell]);
    }
    stride_ = ceil_div(most, kListed) * kListed;
    lists_.resize(static_cast<size_t>(stride_ * kSide * kCells));
    for (int cell = 0; cell < kSide * kCells; ++cell)
      for (uint8_t* to = lists_.data() + cell * stride_; reach[cell]; reach[cell] &= reach[cell] - 1)
        *to++ = static_cast<uint8_t>(__builtin_ctz(reach[cell]));
  }

  void list(Block& b, int64_t row, int rows) const {
    b.row = row;
    b.rows = rows;
    int n = 0;
    for (int r = 0; r < rows; ++r) {
      const int cell = bricks_.cell_of(row + r);
      b.key[r] = bricks_.key(bricks_.brick_of(row + r));
      b.cell[r] = static_cast<uint16_t>(cell);
      for (int64_t i = 0, m = listed_[cell]; i < m; i += kListed) {
        memcpy(b.brick_of + n + i, lists_.data() + cell * stride_ + i, kListed);
        memset(b.row_of + n + i, r, kListed);
      }
      n += listed_[cell];
    }
    b.wanted = n;
    for (int i = 0; i < n; ++i) bricks_.fetch(b.key[b.row_of[i]] + step_[b.brick_of[i]]);
  }

  void look_up(Block& b) const {
    int some = 0, there = 0;
    for (int i = 0; i < b.wanted; ++i) {
      const uint8_t row = b.row_of[i], brick = b.brick_of[i];
      const bool own = brick == kOwn;
      b.row_of[some] = row;
      b.brick_of[some] = brick;
      b.number[some] = bricks_.brick_of(b.row + row);
      some += own | bricks_.some(b.key[row] + step_[brick]);
    }
    for (int i = 0; i < some; ++i) {
      const uint8_t row = b.row_of[i], brick = b.brick_of[i];
      const int32_t number = bricks_.find(b.key[row] + step_[brick], b.number[i], brick == kOwn);
      bricks_.fetch_words(number);
      b.row_of[there] = row;
      b.brick_of[there] = brick;
      b.number[there] = number;
      there += number != 0;
    }
    b.there = there;
  }

  template <class Found>
  void match(const Block& b, const Found& to) const {
    const Found found = to;
    constexpr int kHits = 256;
    uint64_t sites[kHits];
    uint16_t item[kHits], plane[kHits];
    int n = 0;
    const auto tell = [&] {
      for (int i = 0; i < n; ++i) {
        const int k = item[i], cell = b.cell[b.row_of[k]], brick = b.brick_of[k], t = plane[i],
                  at = (cell / kCells + offset_[t]) & (kSide - 1);
        const int32_t* taps = tap_of_[brick / 3 % 3 * kSide - cell / kSide % kSide] +
                              brick % 3 * kSide - cell % kSide;
        for (uint64_t left = sites[i]; left; left &= left - 1) {
          const int bit = __builtin_ctzll(left);
          found(first_tap_[t] + taps[bit / kSide * (2 * kSide + 1) + bit % kSide],
                static_cast<int32_t>(b.row + b.row_of[k]), bricks_.row(b.number[k], at, bit));
        }
      }
      n = 0;
    };
    for (int i = 0; i < b.there; ++i) {
      const int brick = b.brick_of[i], cell = b.cell[b.row_of[i]];
      const Bricks::Words& words = bricks_.words(b.number[i]);
      for (int t = 0; t < planes_; ++t) {
        const int at = cell / kCells + offset_[t];
        sites[n] = words[at & (kSide - 1)] & reached_[t == planes_ - 1][brick % 9][cell % kCells];
        item[n] = static_cast<uint16_t>(i);
        plane[n] = static_cast<uint16_t>(t);
        n += (sites[n] != 0) & ((at >= 0) == (brick >= 9));
        if (n == kHits) tell();
      }
    }
    tell();
  }

  const Bricks& bricks_;
  const Geometry& g_;
  // Of a whole plane of taps, and of the taps of the centre's plane before it: for the bricks along
  // the last two axes, the sites that a cell reaches there.
  uint64_t reached_[2][9][kCells] = {};
  int32_t tap_of_[2 * kSide + 1][2 * kSide + 1] = {};  // of an offset along the last two axes
  uint64_t step_[kAround];
  int planes_ = 0, offset_[kSide + 1];  // planes of taps up to the centre's, and where they lie
  int32_t first_tap_[kSide + 1];
  int64_t stride_ = 0;
  std::vector<uint8_t> lists_;  // [cells][stride_]
  uint8_t listed_[kSide * kCells];
};

}  // namespace s3d
