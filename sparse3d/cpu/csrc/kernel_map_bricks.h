// The searched half of a submanifold map from bricks: for each row, the sites of a word that its
// taps reach are one mask of that word. Blocks of rows go through the steps together, so that a
// step is a short loop with few branches to guess, and memory is asked for a block before it is
// read.
#pragma once

#include <vector>

#include "bricks.h"
#include "kernel_map.h"

namespace s3d {

class BrickSearch {
  static constexpr int kSide = Bricks::kSide, kCells = kSide * kSide, kReach = 2 * kSide + 1;
  static constexpr int kAround = 18,
                       kMiddle = 13;             // bricks before and beside; (first, second, third)
  static constexpr int kRows = 64, kListed = 8;  // of a block; entries of a list copied at a time

 public:
  // A kernel reaches no further than the next brick.
  static bool serves(const Geometry& g) {
    if (g.ndim != 3) return false;
    for (int a = 0; a < 3; ++a)
      if (g.padding[a] > kSide) return false;
    return true;
  }

  BrickSearch(const Bricks& bricks, const Geometry& g) : bricks_(bricks) {
    for (int kind = 0; kind < 2; ++kind)
      for (int cell = 0; cell < kCells; ++cell)
        for (int64_t t = 0, taps = g.kernel[1] * g.kernel[2]; t < (kind ? taps / 2 : taps); ++t) {
          const int64_t by[2] = {t / g.kernel[2] * g.dilation[1] - g.padding[1],
                                 t % g.kernel[2] * g.dilation[2] - g.padding[2]};
          const int64_t at[2] = {cell / kSide + by[0] + kSide, cell % kSide + by[1] + kSide};
          reached_[kind][at[0] / kSide * 3 + at[1] / kSide][cell] |=
              uint64_t(1) << (at[0] % kSide * kSide + at[1] % kSide);
          tap_of_[(by[0] + kSide) * kReach + by[1] + kSide] = static_cast<int32_t>(t);
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
      ask(*fresh, row, static_cast<int>(std::max<int64_t>(0, std::min<int64_t>(kRows, end - row))));
      look_up(*asked);
      match(*known, found);
      std::swap(fresh, known);
      std::swap(asked, known);
    }
  }

 private:
  struct Block {
    int64_t row = 0;
    int rows = 0, asked = 0;
    uint16_t cell[kRows];
    uint8_t run[kRows];            // of rows of one brick
    int32_t near[kRows][kAround];  // of a run: the bricks that its rows reach
    uint8_t asked_run[kRows * kAround], asked_brick[kRows * kAround];
    uint64_t asked_key[kRows * kAround];
  };

  // Which bricks a row of a cell reaches, its own among them: as a set, and listed.
  void list_bricks() {
    int64_t most = 0;
    for (int cell = 0; cell < kSide * kCells; ++cell) {
      for (int t = 0; t < planes_; ++t)
        for (int k = 0; k < 9; ++k)
          if (reached_[t == planes_ - 1][k][cell % kCells])
            reach_[cell] |= 1u << (k + (cell / kCells + offset_[t] < 0 ? 0 : 9));
      listed_[cell] = static_cast<uint8_t>(count_bits(reach_[cell]));
      most = std::max<int64_t>(most, listed_[cell]);
    }
    stride_ = ceil_div(most, kListed) * kListed;
    lists_.resize(static_cast<size_t>(stride_ * kSide * kCells));
    for (int cell = 0; cell < kSide * kCells; ++cell) {
      uint8_t* to = lists_.data() + cell * stride_;
      for (uint32_t left = reach_[cell]; left; left &= left - 1)
        *to++ = static_cast<uint8_t>(__builtin_ctz(left));
    }
  }

  void ask(Block& b, int64_t row, int rows) const {
    b.row = row;
    b.rows = rows;
    b.asked = 0;
    uint32_t reach[kRows + 1] = {};
    int32_t brick[kRows + 1] = {}, last[kRows + 1];
    int run = 0;  // from 1 on here
    for (int r = 0; r < rows; ++r) {
      const int32_t own = bricks_.brick_of(row + r);
      const int cell = bricks_.cell_of(row + r);
      run += own != brick[run];
      brick[run] = own;
      last[run] = r;
      reach[run] |= reach_[cell];
      b.run[r] = static_cast<uint8_t>(run - 1);
      b.cell[r] = static_cast<uint16_t>(cell);
    }
    int n = 0;
    for (int i = 0; i < run; ++i) {
      b.near[i][kMiddle] = brick[i + 1];
      bricks_.fetch_words(brick[i + 1]);
      const uint64_t key = bricks_.key(row + last[i + 1]);  // not from keys by brick: rows are near
      for (uint32_t left = reach[i + 1] & ~(1u << kMiddle); left; left &= left - 1, ++n) {
        const int k = __builtin_ctz(left);
        b.asked_run[n] = static_cast<uint8_t>(i);
        b.asked_brick[n] = static_cast<uint8_t>(k);
        b.asked_key[n] = key + step_[k];
        bricks_.fetch(b.asked_key[n]);
      }
    }
    b.asked = n;
  }

  void look_up(Block& b) const {
    for (int i = 0; i < b.asked; ++i) {
      const int32_t brick = bricks_.find(b.asked_key[i]);
      bricks_.fetch_words(brick);
      b.near[b.asked_run[i]][b.asked_brick[i]] = brick;
    }
  }

  template <class Found>
  void match(const Block& b, const Found& to) const {
    const Found found = to;
    uint8_t row_of[kRows * kAround + kListed], brick_of[kRows * kAround + kListed];
    int reached = 0, hits = 0;
    for (int r = 0; r < b.rows; ++r) {
      const int cell = b.cell[r];
      for (int64_t i = 0; i < listed_[cell]; i += kListed) {
        memcpy(brick_of + reached + i, lists_.data() + cell * stride_ + i, kListed);
        memset(row_of + reached + i, r, kListed);
      }
      reached += listed_[cell];
    }
    constexpr int kHits = 256;
    struct Hit {
      uint64_t sites;
      uint8_t row, brick, plane;
    } hit[kHits];
    const auto tell = [&] {
      for (int i = 0; i < hits; ++i) {
        const Hit& h = hit[i];
        const int cell = b.cell[h.row], brick = b.near[b.run[h.row]][h.brick];
        const int taps = (h.brick / 3 % 3 * kSide - cell / kSide % kSide) * kReach +
                         h.brick % 3 * kSide - cell % kSide;
        for (uint64_t left = h.sites; left; left &= left - 1) {
          const int bit = __builtin_ctzll(left);
          found(first_tap_[h.plane] + tap_of_[taps + bit / kSide * kReach + bit % kSide],
                static_cast<int32_t>(b.row + h.row),
                bricks_.row(brick, (cell / kCells + offset_[h.plane]) & (kSide - 1), bit));
        }
      }
      hits = 0;
    };
    for (int i = 0; i < reached; ++i) {
      const int row = row_of[i], brick = brick_of[i], cell = b.cell[row];
      const Bricks::Words& words = bricks_.words(b.near[b.run[row]][brick]);
      for (int t = 0; t < planes_; ++t) {
        const int at = cell / kCells + offset_[t];
        const uint64_t sites =
            words[at & (kSide - 1)] & reached_[t == planes_ - 1][brick % 9][cell % kCells];
        hit[hits] = {sites, row_of[i], brick_of[i], static_cast<uint8_t>(t)};
        hits += (sites != 0) & ((at >= 0) == (brick >= 9));
        if (hits == kHits) tell();
      }
    }
    tell();
  }

  const Bricks& bricks_;
  // Of a whole plane of taps, and of the taps of the centre's plane before it: for the bricks along
  // the last two axes, the sites that a cell reaches there.
  uint64_t reached_[2][9][kCells] = {};
  int32_t tap_of_[kReach * kReach] = {};  // of an offset along the last two axes
  uint64_t step_[kAround];
  int planes_ = 0, offset_[kSide + 1];  // planes of taps up to the centre's, and where they lie
  int32_t first_tap_[kSide + 1];
  int64_t stride_ = 0;
  std::vector<uint8_t> lists_;  // [cells][stride_]
  uint8_t listed_[kSide * kCells];
  uint32_t reach_[kSide * kCells] = {};
};

}  // namespace s3d
