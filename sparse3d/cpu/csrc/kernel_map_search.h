// Look-ups of neighbours in a coordinate table, for kernels of any shape in 1 to 4 dimensions.
#pragma once

#include "kernel_map.h"
#include "table.h"

namespace s3d {

constexpr int64_t kStep = 16;  // rows hashed together

// The kernel's taps up to some count, row-major, and what a search works with.
template <int W>
class Search {
  static constexpr int kBatch = KeyForm::kCount, kPassed = 32;
  static constexpr int64_t kNear = int64_t(1) << 30;  // sums of two such fit in 32 bits
  struct Batch {
    int count = 0;
    int32_t tap[kBatch], row[kBatch], site[W][kBatch] = {};
    uint32_t home[kBatch], tag[kBatch];
  };
  template <class Base>
  struct Step {
    const Base* base;
    int32_t row;
    bool far;  // sums may pass 32 bits
    int32_t site[W][kStep];
  };

 public:
  Search(const Kernels& kernels, const Table<W>& table, const Geometry& g, int64_t count)
      : kernels_(kernels), table_(table), g_(g), count_(count), offsets_(count * W) {
    int64_t places = 0;
    for (int a = 0; a < W - 1; ++a) {
      first_[a] = places;
      places += g.kernel[a];
    }
    places_ = places;
    below_[W - 2] = 1;
    for (int a = W - 2; a > 0; --a) below_[a - 1] = below_[a] * g.kernel[a];
    for (int64_t t = 0; t < count; ++t) {
      int64_t* offset = offsets_.data() + t * W;
      offset[0] = 0;
      g.offset(t, offset + 1);
      for (int a = 0; a < W; ++a) far_ |= offset[a] < -kNear || offset[a] >= kNear;
    }
    form_ = {W, table.bits(), {}, {}, table.tag_mask()};
    for (int a = 0; a < W; ++a) {
      form_.shift[a] = a ? Blocks<W>::group[a - 1] : 0;
      form_.factor[a] = kFactor[a];
    }
  }
  int64_t scratch_words() const { return places_ * kStep; }

  // A walk over rows. What passes the filter goes on in batches, so that reads of a large table
  // overlap: a batch's slots are asked for when it is full, the rows that they name a batch later,
  // and after one more they are compared.
  template <class Found>
  class Walk {
   public:
    // Calls found(tap, row, neighbour), for every tap in the order of rows.
    Walk(const Search& search, const Found& found)
        : search_(search), found_(found), scratch_(search.scratch_words()) {}

    // The neighbours of m <= kStep rows from `row` on; base(r, a) is a coordinate of the position
    // of row + r.
    template <class Base>
    void rows(const Base& base, int64_t row, int m) {
      Step<Base> step;
      step.base = &base;
      uint32_t partial[W - 1][kStep];
      bool far = search_.far_;
      for (int a = 0; a < W; ++a) {
        for (int r = 0; r < m; ++r) {
          const int64_t at = base(r, a);
          far |= at < -kNear || at >= kNear;
          step.site[a][r] = static_cast<int32_t>(at);
        }
        for (int r = m; r < kStep; ++r) step.site[a][r] = 0;
      }
      step.row = static_cast<int32_t>(row);
      step.far = far;
      search_.shares(step.site, scratch_.data());
      for (int r = 0; r < kStep; ++r)
        partial[0][r] = line_batch(static_cast<uint32_t>(step.site[0][r]));
      axis<0>(scratch_.data(), partial, (1u << m) - 1, 0, step);
      settle(step);
    }
    void finish() {
      for (int i = 0; i < 3; ++i) turn();
    }

   private:
    // Taps from `tap` on whose places along the axes before A are chosen: partial[A] holds the sums
    // of their shares.
    template <int A, class Base>
    void axis(const uint32_t* shares, uint32_t (*partial)[kStep], uint32_t rows, int64_t tap,
              const Step<Base>& step) {
      const Search& s = search_;
      for (int64_t k = 0; k < s.g_.kernel[A]; ++k) {
        const int64_t next = tap * s.g_.kernel[A] + k;
        if (next * s.below_[A] >= s.count_) return;
        const uint32_t* share = shares + (s.first_[A] + k) * kStep;
        if constexpr (A == W - 2) {
          passed_tap_[passed_] = static_cast<int32_t>(next);
          passed_rows_[passed_] = rows & s.kernels_.maybe16(partial[A], share, s.table_.filter(),
                                                            s.table_.filter_bits());
          if (++passed_ == kPassed) settle(step);
        } else {
          for (int r = 0; r < kStep; ++r) partial[A + 1][r] = partial[A][r] + share[r];
          axis<A + 1>(shares, partial, rows, next, step);
        }
      }
    }

    // Positions of what passed the filter.
    template <class Base>
    void settle(const Step<Base>& step) {
      for (int p = 0; p < passed_; ++p) {
        const int32_t tap = passed_tap_[p];
        const int64_t* offset = search_.offsets_.data() + int64_t(tap) * W;
        Batch& to = *batch_[0];
        int n = to.count;
        if (!step.far) {
          int32_t by[W];
          for (int a = 0; a < W; ++a) by[a] = static_cast<int32_t>(offset[a]);
          for (uint32_t live = passed_rows_[p]; live; live &= live - 1, ++n) {
            const int r = __builtin_ctz(live);
            for (int a = 0; a < W; ++a) to.site[a][n] = step.site[a][r] + by[a];
            to.tap[n] = tap;
            to.row[n] = step.row + r;
          }
        } else {  // hashes wrap, coordinates must not: a sum beyond int32 is absent
          for (uint32_t live = passed_rows_[p]; live; live &= live - 1) {
            const int r = __builtin_ctz(live);
            bool inside = true;
            for (int a = 0; a < W; ++a) {
              const int64_t at = (*step.base)(r, a) + offset[a];
              to.site[a][n] = static_cast<int32_t>(at);
              inside &= at == to.site[a][n];
            }
            to.tap[n] = tap;
            to.row[n] = step.row + r;
            n += inside;
          }
        }
        to.count = n;
        if (n > kBatch - kStep) turn();
      }
      passed_ = 0;
    }

    void turn() {
      const Table<W> table = search_.table_;
      const Found found = found_;
      Batch &fresh = *batch_[0], &asked = *batch_[1], &old = *batch_[2];
      for (int i = 0; i < old.count; ++i) {
        int32_t site[W];
        for (int a = 0; a < W; ++a) site[a] = old.site[a][i];
        const int32_t row = table.probe({old.home[i], old.tag[i]}, site);
        if (row >= 0) found(old.tap[i], old.row[i], row);
      }
      old.count = 0;
      for (int i = 0; i < asked.count; ++i) table.fetch_row({asked.home[i], asked.tag[i]});
      if (fresh.count) search_.kernels_.keys(fresh.site, search_.form_, fresh.home, fresh.tag);
      for (int i = 0; i < fresh.count; ++i) table.fetch_slot({fresh.home[i], fresh.tag[i]});
      batch_[0] = &old;
      batch_[1] = &fresh;
      batch_[2] = &asked;
    }

    const Search& search_;
    const Found found_;
    Buffer<uint32_t> scratch_;
    int32_t passed_tap_[kPassed];
    uint32_t passed_rows_[kPassed];
    int passed_ = 0;
    Batch batches_[3];
    Batch* batch_[3] = {batches_, batches_ + 1,
                        batches_ + 2};  // filling, slots asked for, rows too
  };

 private:
  // Of every place along an axis, the shares of 16 positions.
  void shares(const int32_t (*site)[kStep], uint32_t* to) const {
    for (int a = 0; a < W - 1; ++a) {
      const LineAxis line = line_axis<W>(a);
      for (int64_t k = 0; k < g_.kernel[a]; ++k, to += kStep)
        kernels_.shares16(reinterpret_cast<const uint32_t*>(site[a + 1]),
                          static_cast<uint32_t>(k * g_.dilation[a] - g_.padding[a]), line.factor,
                          line.shift, line.place, to);
    }
  }

  const Kernels& kernels_;
  const Table<W>& table_;
  const Geometry& g_;
  int64_t count_, places_ = 0;
  int64_t first_[W - 1], below_[W - 1];  // of an axis: its first place, taps of one place of it
  Buffer<int64_t> offsets_;              // [count][W], 0 for the batch
  bool far_ = false;                     // some offset is
  KeyForm form_;
};

}  // namespace s3d
