// A candidate is an (input row, tap) that reaches an output. Its code, row-major then tap, is the order
// in which outputs are created, so the lowest code that reaches an output owns it. Slots of the hash
// table hold codes; an output's coordinates follow from its owner, no key is stored.
#include "kernel_map_created.h"

#include <atomic>

#include "coordinates.h"

namespace s3d {
namespace {

constexpr uint64_t kFree = ~uint64_t(0);
constexpr int64_t kRows = 1024;  // rows of one work item

inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }

template <int W>
class Footprint {
 public:
  Footprint(const int32_t* coords, int64_t n, const Geometry& g, const int64_t* shape, bool transposed)
      : coords_(coords), n_(n), g_(g), transposed_(transposed), tap_bits_(log2_ceil(g.taps)) {
    for (int a = 0; a < W - 1; ++a) {
      low_[a] = shape ? 0 : INT32_MIN;
      high_[a] = shape ? std::min<int64_t>(shape[a] - 1, INT32_MAX) : INT32_MAX;
      list_at_[a] = lists_;
      lists_ += g.kernel[a];
    }
  }

  struct Reach {
    int64_t tap;  // times the axis's stride in the tap number
    int64_t q;
  };
  int64_t list_size() const { return lists_; }
  int64_t chunks() const { return ceil_div(n_, kRows); }

  // Along each axis on its own: the taps that reach an output, and the output's coordinate.
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
          q = g_.stride[a] == 1 ? v : v / g_.stride[a];
          if (q * g_.stride[a] != v) continue;
        }
        if (q < low_[a] || q > high_[a]) continue;
        list[count++] = {t * weight, q};
      }
      counts[a] = count;
      all *= count;
    }
    return all;
  }

  // Calls f(row, tap, q[W]) for the candidates of a chunk in order.
  template <class F>
  void each(int64_t chunk, const F& f) const {
    Buffer<Reach> lists(lists_);
    int64_t counts[W - 1];
    for (int64_t row = chunk * kRows, e = std::min(n_, row + kRows); row < e; ++row) {
      if (reach(row, lists.data(), counts) == 0) continue;
      int32_t q[W];
      q[0] = coords_[row * W];
      axis<0>(lists.data(), counts, 0, q, [&](int64_t tap) { f(row, tap, q); });
    }
  }

  uint64_t code(int64_t row, int64_t tap) const { return (uint64_t(row) << tap_bits_) | uint64_t(tap); }
  int64_t row_of(uint64_t code) const { return static_cast<int64_t>(code >> tap_bits_); }

  bool reaches(uint64_t code, const int64_t* offsets, const int32_t* q) const {
    const int32_t* p = coords_ + row_of(code) * W;
    const int64_t* off = offsets + static_cast<int64_t>(code & ((uint64_t(1) << tap_bits_) - 1)) * (W - 1);
    if (p[0] != q[0]) return false;
    for (int a = 0; a < W - 1; ++a) {
      const int64_t from = transposed_ ? p[a + 1] : q[a + 1], to = transposed_ ? q[a + 1] : p[a + 1];
      if (from * g_.stride[a] + off[a] != to) return false;
    }
    return true;
  }

 private:
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

}  // namespace

template <int W>
void build_footprint(int32_t threads, const int32_t* coords, int64_t n, const Geometry& g, const int64_t* shape,
                     bool transposed, MapBuild& map) {
  const Footprint<W> fp(coords, n, g, shape, transposed);
  const int64_t chunks = fp.chunks();
  std::vector<int64_t> offsets(static_cast<size_t>(g.taps * (W - 1)));
  for (int64_t t = 0; t < g.taps; ++t) g.offset(t, offsets.data() + t * (W - 1));

  std::vector<int64_t> first(static_cast<size_t>(chunks));  // candidates before each chunk
  parallel_for(threads, chunks, [&](int64_t c) {
    Buffer<typename Footprint<W>::Reach> lists(fp.list_size());
    int64_t counts[W - 1], sum = 0;
    for (int64_t row = c * kRows, e = std::min(n, row + kRows); row < e; ++row) sum += fp.reach(row, lists.data(), counts);
    first[static_cast<size_t>(c)] = sum;
  });
  const int64_t candidates = prefix_sums(first.data(), chunks);
  map.taps = g.taps;
  map.pairs = candidates;

  // Claim: every candidate finds or makes the slot of its output and leaves the lowest code there.
  const int64_t most = std::min(candidates, grid_limit(coords, n, W, shape));
  const int bits = std::max(6, log2_ceil(most) + 1);
  if (bits > 32) throw std::bad_alloc();
  const uint64_t mask = (uint64_t(1) << bits) - 1;
  Buffer<std::atomic<uint64_t>> slots(int64_t(1) << bits);
  const int64_t piece = 1 << 16;
  parallel_for(threads, ceil_div(slots.size(), piece), [&](int64_t i) {
    memset(static_cast<void*>(slots.data() + i * piece), 0xff,
           8 * static_cast<size_t>(std::min(piece, slots.size() - i * piece)));
  });
  Buffer<uint32_t> slot_of(candidates);
  parallel_for(threads, chunks, [&](int64_t c) {
    int64_t at = first[static_cast<size_t>(c)];
    fp.each(c, [&](int64_t row, int64_t tap, const int32_t* q) {
      const uint64_t code = fp.code(row, tap);
      uint64_t s = mix_hash(linear_hash<W>(q)) >> (32 - bits);
      for (;;) {
        uint64_t held = slots[static_cast<int64_t>(s)].load(std::memory_order_relaxed);
        if (held == kFree) {
          if (slots[static_cast<int64_t>(s)].compare_exchange_strong(held, code, std::memory_order_relaxed)) break;
        }
        if (fp.reaches(held, offsets.data(), q)) {
          while (code < held &&
                 !slots[static_cast<int64_t>(s)].compare_exchange_weak(held, code, std::memory_order_relaxed)) {
          }
          break;
        }
        s = (s + 1) & mask;
      }
      slot_of[at++] = static_cast<uint32_t>(s);
    });
  });

  // Rank the owners: by batch, then by code.
  std::vector<int64_t> owners(static_cast<size_t>(chunks));
  parallel_for(threads, chunks, [&](int64_t c) {
    int64_t at = first[static_cast<size_t>(c)], own = 0;
    fp.each(c, [&](int64_t row, int64_t tap, const int32_t*) {
      own += slots[slot_of[at++]].load(std::memory_order_relaxed) == fp.code(row, tap);
    });
    owners[static_cast<size_t>(c)] = own;
  });
  map.rows_out = prefix_sums(owners.data(), chunks);
  if (map.rows_out > INT32_MAX) throw std::bad_alloc();
  Buffer<int32_t> rank(slots.size()), batch(map.rows_out), place(map.rows_out);
  Buffer<uint32_t> owner_slot(map.rows_out);
  map.out_coords = Buffer<int32_t>(map.rows_out * W);
  parallel_for(threads, chunks, [&](int64_t c) {
    int64_t at = first[static_cast<size_t>(c)], next = owners[static_cast<size_t>(c)];
    fp.each(c, [&](int64_t row, int64_t tap, const int32_t* q) {
      const uint32_t s = slot_of[at++];
      if (slots[s].load(std::memory_order_relaxed) != fp.code(row, tap)) return;
      rank[s] = static_cast<int32_t>(next);
      owner_slot[next] = s;
      batch[next] = q[0];
      memcpy(map.out_coords.data() + next++ * W, q, sizeof(int32_t) * W);
    });
  });
  if (place_by_batch(batch.data(), map.rows_out, place.data())) {
    Buffer<int32_t> moved(map.rows_out * W);
    for (int64_t j = 0; j < map.rows_out; ++j) {
      rank[owner_slot[j]] = place[j];
      memcpy(moved.data() + int64_t(place[j]) * W, map.out_coords.data() + j * W, sizeof(int32_t) * W);
    }
    map.out_coords = std::move(moved);
  }

  // Pairs tap by tap in order of rows, then each tap by dst.
  std::vector<int64_t> at(static_cast<size_t>(g.taps * chunks), 0);
  parallel_for(threads, chunks, [&](int64_t c) {
    fp.each(c, [&](int64_t, int64_t tap, const int32_t*) { ++at[static_cast<size_t>(tap * chunks + c)]; });
  });
  prefix_sums(at.data(), g.taps * chunks);
  map.splits.resize(static_cast<size_t>(g.taps + 1));
  for (int64_t t = 0; t < g.taps; ++t) map.splits[static_cast<size_t>(t)] = chunks ? at[static_cast<size_t>(t * chunks)] : 0;
  map.splits[static_cast<size_t>(g.taps)] = candidates;
  map.src = Buffer<int32_t>(candidates);
  map.dst = Buffer<int32_t>(candidates);
  parallel_for(threads, chunks, [&](int64_t c) {
    int64_t k = first[static_cast<size_t>(c)];
    fp.each(c, [&](int64_t row, int64_t tap, const int32_t*) {
      const int64_t p = at[static_cast<size_t>(tap * chunks + c)]++;
      map.src[p] = static_cast<int32_t>(row);
      map.dst[p] = rank[slot_of[k++]];
    });
  });
  Buffer<int32_t> spare_src(candidates), spare_dst(candidates);
  parallel_for(threads, g.taps, [&](int64_t t) {
    const int64_t b = map.splits[static_cast<size_t>(t)], m = map.splits[static_cast<size_t>(t + 1)] - b;
    stable_sort_pairs(map.dst.data() + b, map.src.data() + b, spare_dst.data() + b, spare_src.data() + b, m, map.rows_out);
  });
}

template <int W>
void build_floor(int32_t threads, const Kernels& kernels, const Table<W>& table, const Geometry& g, MapBuild& map) {
  bool disjoint = !table.duplicates();  // every row reaches exactly its own output
  for (int a = 0; a < W - 1; ++a)
    disjoint = disjoint && g.kernel[a] == g.stride[a] && g.padding[a] == 0 && (g.dilation[a] == 1 || g.kernel[a] == 1);
  if (disjoint) {
    build_footprint<W>(threads, table.row(0), table.rows(), g, nullptr, false, map);
    return;
  }
  const int64_t n = table.rows();
  Buffer<int32_t> coarse(n * W);
  parallel_for(threads, chunk_count(n), [&](int64_t c) {
    for (int64_t i = c * kChunk, e = std::min(n, i + kChunk); i < e; ++i) {
      coarse[i * W] = table.row(i)[0];
      for (int a = 1; a < W; ++a) coarse[i * W + a] = static_cast<int32_t>(floor_div(table.row(i)[a], g.stride[a - 1]));
    }
  });
  const Unique u = unique_rows<W>(threads, coarse.data(), n);
  map.out_coords = Buffer<int32_t>(u.count * W);
  for (int64_t j = 0; j < u.count; ++j)
    memcpy(map.out_coords.data() + j * W, coarse.data() + int64_t(u.first[j]) * W, sizeof(int32_t) * W);
  search_given<W>(threads, kernels, table, g, map.out_coords.data(), u.count, map);
}

#define S3D_INSTANTIATE(W)                                                                                              \
  template void build_footprint<W>(int32_t, const int32_t*, int64_t, const Geometry&, const int64_t*, bool, MapBuild&); \
  template void build_floor<W>(int32_t, const Kernels&, const Table<W>&, const Geometry&, MapBuild&);
S3D_INSTANTIATE(2)
S3D_INSTANTIATE(3)
S3D_INSTANTIATE(4)
S3D_INSTANTIATE(5)

}  // namespace s3d
