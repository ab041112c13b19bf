// A candidate is an (input row, tap) that reaches an output. Its code, row-major then tap, is the
// order in which outputs are created, so the lowest code that reaches an output owns it. Slots of
// the hash table hold codes; an output's coordinates follow from its owner, no key is stored.
#include "kernel_map_created.h"

#include <atomic>

#include "coordinates.h"

namespace s3d {
namespace {

constexpr uint64_t kFree = ~uint64_t(0);
constexpr int64_t kRows = 1024;  // rows of one work item
constexpr int64_t kAhead = 32;   // candidates whose slots are fetched before they are looked at

inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }

// Division by a stride: a shift where the stride is a power of two.
struct Divisor {
  int64_t value = 1, mask = 0;
  int shift = 0;
  explicit Divisor(int64_t v = 1) : value(v) {
    if ((v & (v - 1)) != 0) {
      shift = -1;
      return;
    }
    shift = log2_ceil(v);
    mask = v - 1;
  }
  bool divides(int64_t v) const { return shift >= 0 ? (v & mask) == 0 : v % value == 0; }
  int64_t exact(int64_t v) const { return shift >= 0 ? v >> shift : v / value; }
  int64_t floor(int64_t v) const { return shift >= 0 ? v >> shift : floor_div(v, value); }
};

template <int W>
class Footprint {
 public:
  Footprint(const int32_t* coords, int64_t n, const Geometry& g, const int64_t* shape,
            bool transposed)
      : coords_(coords), n_(n), g_(g), transposed_(transposed), tap_bits_(log2_ceil(g.taps)) {
    for (int a = 0; a < W - 1; ++a) {
      low_[a] = shape ? 0 : INT32_MIN;
      high_[a] = shape ? std::min<int64_t>(shape[a] - 1, INT32_MAX) : INT32_MAX;
      list_at_[a] = lists_;
      lists_ += g.kernel[a];
      stride_[a] = Divisor(g.stride[a]);
    }
    offsets_.resize(static_cast<size_t>(g.taps * (W - 1)));
    for (int64_t t = 0; t < g.taps; ++t) g.offset(t, offsets_.data() + t * (W - 1));
  }

  struct Reach {
    int64_t tap;  // times the weight of the axis in the tap number
    int64_t q;
  };
  int64_t list_size() const { return lists_; }
  int64_t chunks() const { return ceil_div(n_, kRows); }

  // Along each axis on its own: the taps that reach an output, and the output's coordinate. Returns
  // the number of candidates of the row.
  int64_t reach(int64_t row, Reach* lists, int64_t* counts) const {
    const int32_t* p = coords_ + row * W;
    int64_t all = 1, weight = g_.taps;
    for (int a = 0; a < W - 1; ++a) {
      weight /= g_.kernel[a];
      Reach* list = lists + list_at_[a];
      int64_t count = 0;
      for (int64_t t = 0; t < g_.kernel[a]; ++t) {
        int64_t q;
        if (transposed_) {
          q = int64_t(p[a + 1]) * g_.stride[a] - g_.padding[a] + t * g_.dilation[a];
        } else {
          const int64_t v = int64_t(p[a + 1]) + g_.padding[a] - t * g_.dilation[a];
          if (!stride_[a].divides(v)) continue;
          q = stride_[a].exact(v);
        }
        if (q < low_[a] || q > high_[a]) continue;
        list[count++] = {t * weight, q};
      }
      counts[a] = count;
      all *= count;
    }
    return all;
  }

  // Calls f(tap, q[W]) for the candidates of a row in order.
  template <class F>
  void each(int64_t row, const Reach* lists, const int64_t* counts, const F& f) const {
    int32_t q[W];
    q[0] = coords_[row * W];
    axis<0>(lists, counts, 0, q, [&](int64_t tap) { f(tap, q); });
  }

  uint64_t code(int64_t row, int64_t tap) const {
    return (uint64_t(row) << tap_bits_) | uint64_t(tap);
  }

  // Whether the candidate of a code reaches q.
  bool reaches(uint64_t code, const int32_t* q) const {
    const int32_t* p = coords_ + static_cast<int64_t>(code >> tap_bits_) * W;
    const int64_t* off = offset(static_cast<int64_t>(code & ((uint64_t(1) << tap_bits_) - 1)));
    if (p[0] != q[0]) return false;
    for (int a = 0; a < W - 1; ++a) {
      const int64_t from = transposed_ ? p[a + 1] : q[a + 1],
                    to = transposed_ ? q[a + 1] : p[a + 1];
      if (from * g_.stride[a] + off[a] != to) return false;
    }
    return true;
  }

  void output(int64_t row, int64_t tap, int32_t* q) const {
    const int32_t* p = coords_ + row * W;
    const int64_t* off = offset(tap);
    q[0] = p[0];
    for (int a = 0; a < W - 1; ++a)
      q[a + 1] = static_cast<int32_t>(transposed_ ? p[a + 1] * g_.stride[a] + off[a]
                                                  : stride_[a].exact(p[a + 1] - off[a]));
  }

 private:
  const int64_t* offset(int64_t tap) const { return offsets_.data() + tap * (W - 1); }

  template <int A, class F>
  void axis(const Reach* lists, const int64_t* counts, int64_t tap, int32_t* q, const F& f) const {
    if constexpr (A == W - 1) {
      f(tap);
    } else {
      const Reach* list = lists + list_at_[A];
      for (int64_t i = 0; i < counts[A]; ++i) {
        q[A + 1] = static_cast<int32_t>(list[i].q);
        axis<A + 1>(lists, counts, tap + list[i].tap, q, f);
      }
    }
  }

  const int32_t* coords_;
  int64_t n_;
  const Geometry& g_;
  bool transposed_;
  int tap_bits_;
  int64_t low_[4], high_[4], list_at_[4], lists_ = 0;
  Divisor stride_[4];
  std::vector<int64_t> offsets_;
};

// Most outputs that a grid can hold, or INT64_MAX.
int64_t grid_limit(const int32_t* coords, int64_t n, int width, const int64_t* shape) {
  if (!shape || n == 0) return INT64_MAX;
  int64_t low = coords[0], high = coords[0];
  for (int64_t i = 1; i < n; ++i) {
    low = std::min<int64_t>(low, coords[i * width]);
    high = std::max<int64_t>(high, coords[i * width]);
  }
  int64_t limit = high - low + 1;
  for (int a = 0; a < width - 1; ++a) {
    if (shape[a] <= 0) return 0;
    if (limit > (int64_t(1) << 40) / shape[a]) return INT64_MAX;
    limit *= shape[a];
  }
  return limit;
}

// Candidates listed by row, each with its tap and the number of its output, into pairs by tap and
// dst. first[c]: candidates before chunk c of kRows rows; count[row]: candidates of a row.
void pairs_of_candidates(int32_t threads, int64_t n, const std::vector<int64_t>& first,
                         const int32_t* count, const uint32_t* tap_of, const int32_t* output_of,
                         MapBuild& map) {
  const auto chunks = static_cast<int64_t>(first.size());
  const int64_t taps = map.taps;
  const auto end_of = [&](int64_t c) {
    return c + 1 < chunks ? first[static_cast<size_t>(c + 1)] : map.pairs;
  };
  Buffer<int64_t> at(taps * chunks);
  parallel_for(threads, chunks, [&](int64_t c) {
    Buffer<int64_t> local(taps);
    std::fill(local.data(), local.data() + taps, int64_t(0));
    for (int64_t k = first[static_cast<size_t>(c)]; k < end_of(c); ++k) ++local[tap_of[k]];
    for (int64_t t = 0; t < taps; ++t) at[t * chunks + c] = local[t];
  });
  prefix_sums(at.data(), taps * chunks);
  map.splits.resize(static_cast<size_t>(taps + 1));
  for (int64_t t = 0; t < taps; ++t)
    map.splits[static_cast<size_t>(t)] = chunks ? at[t * chunks] : 0;
  map.splits[static_cast<size_t>(taps)] = map.pairs;
  map.src = Buffer<int32_t>(map.pairs);
  map.dst = Buffer<int32_t>(map.pairs);
  parallel_for(threads, chunks, [&](int64_t c) {
    Buffer<int64_t> next(taps);
    for (int64_t t = 0; t < taps; ++t) next[t] = at[t * chunks + c];
    int64_t k = first[static_cast<size_t>(c)];
    for (int64_t row = c * kRows, e = std::min(n, row + kRows); row < e; ++row)
      for (int32_t i = 0; i < count[row]; ++i, ++k) {
        const int64_t p = next[tap_of[k]]++;
        map.src[p] = static_cast<int32_t>(row);
        map.dst[p] = output_of[k];
      }
  });
  Buffer<int32_t> spare_src(map.pairs), spare_dst(map.pairs);
  parallel_for(threads, taps, [&](int64_t t) {
    const int64_t b = map.splits[static_cast<size_t>(t)],
                  m = map.splits[static_cast<size_t>(t + 1)] - b;
    stable_sort_pairs(map.dst.data() + b, map.src.data() + b, spare_dst.data() + b,
                      spare_src.data() + b, m, map.rows_out);
  });
}

// Kernel = stride, no padding, no dilation: every row reaches exactly floor(p / stride), and the
// tap is the remainder.
template <int W>
void build_partition(int32_t threads, const int32_t* coords, int64_t n, const Geometry& g,
                     const int64_t* shape, MapBuild& map) {
  Buffer<int32_t> coarse(n * W), count(n);
  Buffer<uint32_t> tap(n);
  Divisor stride[W - 1];
  for (int a = 0; a < W - 1; ++a) stride[a] = Divisor(g.stride[a]);
  const int64_t chunks = ceil_div(n, kRows);
  std::vector<int64_t> first(static_cast<size_t>(chunks));
  parallel_for(threads, chunks, [&](int64_t c) {
    int64_t sum = 0;
    for (int64_t i = c * kRows, e = std::min(n, i + kRows); i < e; ++i) {
      int64_t t = 0;
      bool legal = true;
      coarse[i * W] = coords[i * W];
      for (int a = 0; a < W - 1; ++a) {
        const int64_t p = coords[i * W + a + 1], q = stride[a].floor(p);
        t = t * g.kernel[a] + (p - q * g.stride[a]);
        legal = legal && (!shape || (q >= 0 && q < shape[a]));
        coarse[i * W + a + 1] = static_cast<int32_t>(q);
      }
      tap[i] = static_cast<uint32_t>(t);
      count[i] = legal;
      sum += legal;
    }
    first[static_cast<size_t>(c)] = sum;
  });
  map.taps = g.taps;
  map.pairs = prefix_sums(first.data(), chunks);
  if (map.pairs < n) {  // some rows lie outside the grid: keep the others
    int64_t k = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (!count[i]) continue;
      memmove(coarse.data() + k * W, coarse.data() + i * W, sizeof(int32_t) * W);
      tap[k++] = tap[i];
    }
  }
  const Unique u = unique_rows<W>(threads, coarse.data(), map.pairs);
  map.rows_out = u.count;
  map.out_coords = Buffer<int32_t>(u.count * W);
  for (int64_t j = 0; j < u.count; ++j)
    memcpy(map.out_coords.data() + j * W, coarse.data() + int64_t(u.first[j]) * W,
           sizeof(int32_t) * W);
  pairs_of_candidates(threads, n, first, count.data(), tap.data(), u.rank.data(), map);
}

template <int W>
bool is_partition(const Geometry& g) {
  for (int a = 0; a < W - 1; ++a)
    if (g.kernel[a] != g.stride[a] || g.padding[a] != 0 || (g.dilation[a] != 1 && g.kernel[a] != 1))
      return false;
  return true;
}

}  // namespace

template <int W>
void build_footprint(int32_t threads, const int32_t* coords, int64_t n, const Geometry& g,
                     const int64_t* shape, bool transposed, MapBuild& map) {
  if (g.taps > UINT32_MAX) throw BadArgument{};
  if (!transposed && is_partition<W>(g)) {
    build_partition<W>(threads, coords, n, g, shape, map);
    return;
  }
  const Footprint<W> fp(coords, n, g, shape, transposed);
  using Reach = typename Footprint<W>::Reach;
  const int64_t chunks = fp.chunks();
  std::vector<int64_t> first(static_cast<size_t>(chunks));
  Buffer<int32_t> count(n);
  parallel_for(threads, chunks, [&](int64_t c) {
    Buffer<Reach> lists(fp.list_size());
    int64_t counts[W - 1], sum = 0;
    for (int64_t row = c * kRows, e = std::min(n, row + kRows); row < e; ++row) {
      const int64_t all = fp.reach(row, lists.data(), counts);
      count[row] = static_cast<int32_t>(all);
      sum += all;
    }
    first[static_cast<size_t>(c)] = sum;
  });
  const int64_t candidates = prefix_sums(first.data(), chunks);
  map.taps = g.taps;
  map.pairs = candidates;

  // Claim: every candidate finds or makes the slot of its output and leaves the lowest code there.
  const int64_t most = std::min(candidates, grid_limit(coords, n, W, shape));
  const int bits = std::max(6, log2_ceil(most + most / 2));
  if (bits > 32) throw std::bad_alloc();
  const uint64_t mask = (uint64_t(1) << bits) - 1;
  Buffer<std::atomic<uint64_t>> slots(int64_t(1) << bits);
  const int64_t piece = 1 << 16;
  parallel_for(threads, ceil_div(slots.size(), piece), [&](int64_t i) {
    memset(static_cast<void*>(slots.data() + i * piece), 0xff,
           8 * static_cast<size_t>(std::min(piece, slots.size() - i * piece)));
  });
  Buffer<uint32_t> slot_of(candidates), tap_of(candidates);
  parallel_for(threads, chunks, [&](int64_t c) {
    Buffer<Reach> lists(fp.list_size());
    int64_t counts[W - 1], k = first[static_cast<size_t>(c)];
    struct Waiting {
      uint64_t code, slot;
      int32_t q[W];
    } waiting[kAhead];
    int64_t length = 0;
    const auto flush = [&] {
      for (int64_t i = 0; i < length; ++i) {
        const Waiting& w = waiting[i];
        uint64_t s = w.slot;
        for (;; s = (s + 1) & mask) {
          auto& slot = slots[static_cast<int64_t>(s)];
          uint64_t held = slot.load(std::memory_order_relaxed);
          if (held == kFree &&
              slot.compare_exchange_strong(held, w.code, std::memory_order_relaxed))
            break;
          if (!fp.reaches(held, w.q)) continue;
          while (w.code < held &&
                 !slot.compare_exchange_weak(held, w.code, std::memory_order_relaxed)) {
          }
          break;
        }
        slot_of[k++] = static_cast<uint32_t>(s);
      }
      length = 0;
    };
    int64_t listed = k;
    for (int64_t row = c * kRows, e = std::min(n, row + kRows); row < e; ++row) {
      if (count[row] == 0) continue;
      fp.reach(row, lists.data(), counts);
      fp.each(row, lists.data(), counts, [&](int64_t tap, const int32_t* q) {
        Waiting& w = waiting[length++];
        w.code = fp.code(row, tap);
        w.slot = mix_hash(linear_hash<W>(q)) >> (32 - bits);
        memcpy(w.q, q, sizeof(w.q));
        __builtin_prefetch(&slots[static_cast<int64_t>(w.slot)], 1);
        tap_of[listed++] = static_cast<uint32_t>(tap);
        if (length == kAhead) flush();
      });
    }
    flush();
  });

  // Rank the owners, by batch, then by code; a slot then holds the number of its output.
  std::vector<int64_t> owners(static_cast<size_t>(chunks));
  Buffer<uint8_t> owns(candidates);
  parallel_for(threads, chunks, [&](int64_t c) {
    int64_t own = 0, k = first[static_cast<size_t>(c)];
    for (int64_t row = c * kRows, e = std::min(n, row + kRows); row < e; ++row)
      for (int32_t i = 0; i < count[row]; ++i, ++k) {
        owns[k] = slots[slot_of[k]].load(std::memory_order_relaxed) == fp.code(row, tap_of[k]);
        own += owns[k];
      }
    owners[static_cast<size_t>(c)] = own;
  });
  map.rows_out = prefix_sums(owners.data(), chunks);
  if (map.rows_out > INT32_MAX) throw std::bad_alloc();
  Buffer<int32_t> batch(map.rows_out), place(map.rows_out);
  Buffer<uint32_t> owner_slot(map.rows_out);
  map.out_coords = Buffer<int32_t>(map.rows_out * W);
  parallel_for(threads, chunks, [&](int64_t c) {
    int64_t next = owners[static_cast<size_t>(c)], k = first[static_cast<size_t>(c)];
    for (int64_t row = c * kRows, e = std::min(n, row + kRows); row < e; ++row)
      for (int32_t i = 0; i < count[row]; ++i, ++k) {
        if (!owns[k]) continue;
        owner_slot[next] = slot_of[k];
        batch[next] = coords[row * W];
        fp.output(row, tap_of[k], map.out_coords.data() + next++ * W);
      }
  });
  const bool moves = place_by_batch(batch.data(), map.rows_out, place.data());
  parallel_for(threads, chunk_count(map.rows_out), [&](int64_t c) {
    for (int64_t j = c * kChunk, e = std::min(map.rows_out, j + kChunk); j < e; ++j)
      slots[owner_slot[j]].store(static_cast<uint64_t>(moves ? place[j] : j),
                                 std::memory_order_relaxed);
  });
  if (moves) {
    Buffer<int32_t> moved(map.rows_out * W);
    for (int64_t j = 0; j < map.rows_out; ++j)
      memcpy(moved.data() + int64_t(place[j]) * W, map.out_coords.data() + j * W,
             sizeof(int32_t) * W);
    map.out_coords = std::move(moved);
  }
  Buffer<int32_t> output_of(candidates);
  parallel_for(threads, chunks, [&](int64_t c) {
    const int64_t end = c + 1 < chunks ? first[static_cast<size_t>(c + 1)] : candidates;
    for (int64_t k = first[static_cast<size_t>(c)]; k < end; ++k)
      output_of[k] = static_cast<int32_t>(slots[slot_of[k]].load(std::memory_order_relaxed));
  });
  pairs_of_candidates(threads, n, first, count.data(), tap_of.data(), output_of.data(), map);
}

template <int W>
void build_floor(int32_t threads, const Kernels& kernels, const Table<W>& table, const Geometry& g,
                 MapBuild& map) {
  if (!table.duplicates() && is_partition<W>(g)) {
    build_partition<W>(threads, table.row(0), table.rows(), g, nullptr, map);
    return;
  }
  const int64_t n = table.rows();
  Buffer<int32_t> coarse(n * W);
  parallel_for(threads, chunk_count(n), [&](int64_t c) {
    for (int64_t i = c * kChunk, e = std::min(n, i + kChunk); i < e; ++i) {
      coarse[i * W] = table.row(i)[0];
      for (int a = 1; a < W; ++a)
        coarse[i * W + a] = static_cast<int32_t>(floor_div(table.row(i)[a], g.stride[a - 1]));
    }
  });
  const Unique u = unique_rows<W>(threads, coarse.data(), n);
  map.out_coords = Buffer<int32_t>(u.count * W);
  for (int64_t j = 0; j < u.count; ++j)
    memcpy(map.out_coords.data() + j * W, coarse.data() + int64_t(u.first[j]) * W,
           sizeof(int32_t) * W);
  search_given<W>(threads, kernels, table, g, map.out_coords.data(), u.count, map);
}

#define S3D_INSTANTIATE(W)                                                                \
  template void build_footprint<W>(int32_t, const int32_t*, int64_t, const Geometry&,     \
                                   const int64_t*, bool, MapBuild&);                      \
  template void build_floor<W>(int32_t, const Kernels&, const Table<W>&, const Geometry&, \
                               MapBuild&);
S3D_INSTANTIATE(2)
S3D_INSTANTIATE(3)
S3D_INSTANTIATE(4)
S3D_INSTANTIATE(5)

}  // namespace s3d
