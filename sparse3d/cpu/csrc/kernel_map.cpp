// Kernel maps of known outputs: submanifold (half of the taps searched, the other half mirrored)
// and given. Also the compaction of neighbours into pairs, and the handles of the C ABI.
#include "kernel_map.h"

#include "abi.h"
#include "coordinates.h"
#include "kernel_map_created.h"

namespace s3d {
namespace {

constexpr int64_t kStep = 16;  // rows hashed together

// The kernel's taps up to some count, row-major, and what a search works with.
template <int W>
class Search {
 public:
  Search(const Kernels& kernels, const Table<W>& table, const Geometry& g, int64_t count)
      : kernels_(kernels), table_(table), g_(g), count_(count), offsets_(count * (W - 1)) {
    int64_t places = 0;
    for (int a = 0; a < W - 1; ++a) {
      first_[a] = places;
      places += g.kernel[a];
    }
    places_ = places;
    below_[W - 2] = 1;
    for (int a = W - 2; a > 0; --a) below_[a - 1] = below_[a] * g.kernel[a];
    for (int64_t t = 0; t < count; ++t) g.offset(t, offsets_.data() + t * (W - 1));
  }
  int64_t scratch_words() const { return places_ * kStep; }

  // Calls found(tap, r, row) for the neighbours of m <= kStep positions, those of a tap in order;
  // base(r, a) is a coordinate of position r. What passes the filter waits until there is a batch,
  // whose reads of a large table then overlap.
  template <class Base, class Found>
  void rows(const Base& base, int m, uint32_t* scratch, const Found& found) const {
    uint32_t site[W][kStep] = {}, partial[W - 1][kStep];
    for (int r = 0; r < m; ++r)
      for (int a = 0; a < W; ++a) site[a][r] = static_cast<uint32_t>(base(r, a));
    for (int a = 0; a < W - 1; ++a) {
      const LineAxis line = line_axis<W>(a);
      for (int64_t k = 0; k < g_.kernel[a]; ++k)
        kernels_.shares16(site[a + 1], static_cast<uint32_t>(k * g_.dilation[a] - g_.padding[a]),
                          line.factor, line.shift, line.place, scratch + (first_[a] + k) * kStep);
    }
    for (int r = 0; r < kStep; ++r) partial[0][r] = line_batch(site[0][r]);
    Batch<Base> batch(*this, base);
    axis<0>(scratch, partial, (1u << m) - 1, 0, batch, found);
    batch.probe_all(found);
  }

 private:
  struct Candidate {
    int64_t tap;
    int row;
    typename Table<W>::Key key;
    int32_t site[W];
  };
  static constexpr int kBatch = 48;
  template <class Base>
  struct Batch {
    const Search& search;
    const Base& base;
    int length = 0;
    Candidate list[kBatch + kStep];

    Batch(const Search& s, const Base& b) : search(s), base(b) {}

    // Hashes wrap, coordinates must not: a sum beyond int32 is absent.
    void add(int64_t tap, int row) {
      Candidate& c = list[length];
      const int64_t* offset = search.offsets_.data() + tap * (W - 1);
      c.site[0] = static_cast<int32_t>(base(row, 0));
      for (int a = 1; a < W; ++a) {
        const int64_t at = base(row, a) + offset[a - 1];
        if (at != static_cast<int32_t>(at)) return;
        c.site[a] = static_cast<int32_t>(at);
      }
      c.tap = tap;
      c.row = row;
      c.key = search.table_.key_of(c.site);
      search.table_.fetch_slot(c.key);
      ++length;
    }
    template <class Found>
    void probe_all(const Found& found) {
      for (int i = 0; i < length; ++i) search.table_.fetch_row(list[i].key);
      for (int i = 0; i < length; ++i) {
        const Candidate& c = list[i];
        const int32_t row = search.table_.probe(c.key, c.site);
        if (row >= 0) found(c.tap, c.row, row);
      }
      length = 0;
    }
  };

  // Taps from `tap` on whose places along the axes before A are chosen: partial[A] holds the sums
  // of their shares.
  template <int A, class Waiting, class Found>
  void axis(const uint32_t* shares, uint32_t (*partial)[kStep], uint32_t rows, int64_t tap,
            Waiting& batch, const Found& found) const {
    for (int64_t k = 0; k < g_.kernel[A]; ++k) {
      const int64_t next = tap * g_.kernel[A] + k;
      if (next * below_[A] >= count_) return;
      const uint32_t* share = shares + (first_[A] + k) * kStep;
      if constexpr (A == W - 2) {
        uint32_t live =
            rows & kernels_.maybe16(partial[A], share, table_.filter(), table_.filter_bits());
        for (; live; live &= live - 1) batch.add(next, __builtin_ctz(live));
        if (batch.length >= kBatch) batch.probe_all(found);
      } else {
        for (int r = 0; r < kStep; ++r) partial[A + 1][r] = partial[A][r] + share[r];
        axis<A + 1>(shares, partial, rows, next, batch, found);
      }
    }
  }

  const Kernels& kernels_;
  const Table<W>& table_;
  const Geometry& g_;
  int64_t count_, places_ = 0;
  int64_t first_[W - 1], below_[W - 1];  // of an axis: its first place, taps of one place of it
  Buffer<int64_t> offsets_;
};

// What chunks of rows found, for the taps that mirror theirs: sorted by groups of chunks of the
// rows that the mirrored pairs lead to. A group then places its entries in a table that fits a
// cache, where one table of all rows would be written at random.
class Mirror {
  static constexpr int kRowBits = 12;
  static_assert(kChunk == 1 << kRowBits, "a row in its chunk");

 public:
  static constexpr int64_t kMostTaps = int64_t(1) << (32 - kRowBits);
  Mirror(int64_t chunks, int64_t taps)
      : chunks_(chunks),
        taps_(taps),
        shift_(log2_ceil(ceil_div(chunks, kGroups))),
        groups_(ceil_div(chunks, int64_t(1) << shift_)),
        entries_(static_cast<size_t>(chunks)),
        first_(chunks * (groups_ + 1)) {}
  int64_t groups() const { return groups_; }

  // Pairs of chunk c as the lists of a map hold them.
  void note(int64_t c, const int64_t* count, const int32_t* src, const int32_t* dst, Slabs& slabs) {
    int64_t all = 0;
    for (int64_t t = 0; t < taps_; ++t) all += count[t];
    int32_t* first = first_.data() + c * (groups_ + 1);
    std::fill(first, first + groups_ + 1, 0);
    for (int64_t p = 0; p < all; ++p) ++first[group_of(src[p]) + 1];
    for (int64_t g = 0; g < groups_; ++g) first[g + 1] += first[g];
    Buffer<int32_t> next(groups_);
    std::copy(first, first + groups_, next.data());
    Entry* to = reinterpret_cast<Entry*>(slabs.take(2 * all));
    entries_[static_cast<size_t>(c)] = to;
    for (int64_t t = 0, p = 0; t < taps_; ++t)
      for (const int64_t end = p + count[t]; p < end; ++p)
        to[next[group_of(src[p])]++] = {
            static_cast<uint32_t>(t << kRowBits | (dst[p] - c * kChunk)), src[p]};
  }

  // The lists of the mirrored taps of every chunk of group g, and their counts.
  void place(int64_t g, const Kernels& kernels, MapBuild& map) const {
    const int64_t first = g << shift_, last = std::min(chunks_, (g + 1) << shift_),
                  begin = first * kChunk, rows = std::min(map.rows_out, last * kChunk) - begin;
    Buffer<int32_t> near(taps_ * rows);
    Buffer<int64_t> count((last - first) * taps_);
    if (near.size()) memset(near.data(), 0xff, static_cast<size_t>(near.size()) * 4);
    std::fill(count.data(), count.data() + count.size(), int64_t(0));
    for (int64_t c = 0; c < chunks_; ++c) {
      const int32_t* range = first_.data() + c * (groups_ + 1) + g;
      const Entry* from = entries_[static_cast<size_t>(c)];
      for (int64_t p = range[0]; p < range[1]; ++p) {
        const int64_t row = from[p].dst - begin, tap = taps_ - 1 - (from[p].tap_row >> kRowBits);
        near[tap * rows + row] =
            static_cast<int32_t>(c * kChunk + (from[p].tap_row & ((1u << kRowBits) - 1)));
        ++count[row / kChunk * taps_ + tap];
      }
    }
    for (int64_t c = first; c < last; ++c) {
      const int64_t at = c * kChunk - begin, m = std::min(kChunk, rows - at);
      const int64_t* found = count.data() + (c - first) * taps_;
      const int64_t all = map.count(c, taps_ + 1, taps_, found);
      int32_t* pairs = map.lists.take(2 * all);
      map.after[static_cast<size_t>(c)] = pairs;
      for (int64_t t = 0; t < taps_; pairs += found[t++])
        kernels.compact(near.data() + t * rows + at, m, static_cast<int32_t>(c * kChunk), pairs,
                        pairs + all);
    }
  }

 private:
  static constexpr int64_t kGroups = 256;
  struct Entry {
    uint32_t tap_row;  // the searched tap, and the mirrored pair's src in its chunk
    int32_t dst;
  };
  int64_t group_of(int32_t row) const { return row / kChunk >> shift_; }

  int64_t chunks_, taps_;
  int shift_;  // log2 of the chunks of a group
  int64_t groups_;
  std::vector<const Entry*> entries_;
  Buffer<int32_t> first_;  // [chunks][groups + 1] in a chunk's entries
};

template <int W>
void search_submanifold(int32_t threads, const Kernels& kernels, const Table<W>& table,
                        const Geometry& g, MapBuild& map) {
  const int64_t n = table.rows();
  if (table.duplicates() || g.taps / 2 > Mirror::kMostTaps) {  // one entry would have two writers
    search_given<W>(threads, kernels, table, g, table.row(0), n, map);
    return;
  }
  const int64_t centre = g.taps / 2, chunks = chunk_count(n);
  map.taps = g.taps;
  map.rows_out = n;
  map.identity = centre;
  map.start.assign(static_cast<size_t>(g.taps * chunks), 0);
  map.before.resize(static_cast<size_t>(chunks));
  map.after.resize(static_cast<size_t>(chunks));
  map.lists.reserve(6 * n);
  if (chunks == 0) return;
  const Search<W> search(kernels, table, g, centre);
  Mirror mirror(chunks, centre);
  Slabs noted;
  noted.reserve(4 * n);
  parallel_for(threads, chunks, [&](int64_t c) {
    const int64_t begin = c * kChunk, end = std::min(n, begin + kChunk), rows = end - begin;
    Buffer<int32_t> src(centre * rows), dst(centre * rows);  // of every tap; little is touched
    Buffer<int64_t> count(centre);
    Buffer<uint32_t> scratch(search.scratch_words());
    std::fill(count.data(), count.data() + centre, int64_t(0));
    for (int64_t i = begin; i < end; i += kStep) {
      const int m = static_cast<int>(std::min(kStep, end - i));
      if (i + kStep < end) table.fetch_filter(i + kStep, std::min(2 * kStep, end - i) - kStep);
      const int32_t* rows_here = table.row(i);
      const auto base = [&](int r, int a) -> int64_t { return rows_here[r * W + a]; };
      search.rows(base, m, scratch.data(), [&](int64_t t, int r, int32_t row) {
        const int64_t at = t * rows + count[t]++;
        src[at] = row;
        dst[at] = static_cast<int32_t>(i + r);
      });
    }
    const int64_t all = map.count(c, 0, centre, count.data());
    int32_t* pairs = map.lists.take(2 * all);
    for (int64_t t = 0, at = 0; t < centre; at += count[t++]) {
      copy_bytes(pairs + at, src.data() + t * rows, count[t] * 4);
      copy_bytes(pairs + all + at, dst.data() + t * rows, count[t] * 4);
    }
    map.before[static_cast<size_t>(c)] = pairs;
    map.start[static_cast<size_t>(centre * chunks + c)] = rows;
    mirror.note(c, count.data(), pairs, pairs + all, noted);
  });
  parallel_for(threads, mirror.groups(), [&](int64_t g) { mirror.place(g, kernels, map); });
}

}  // namespace

template <int W>
void search_given(int32_t threads, const Kernels& kernels, const Table<W>& table, const Geometry& g,
                  const int32_t* out, int64_t rows_out, MapBuild& map) {
  map.taps = g.taps;
  map.rows_out = rows_out;
  map.neighbour = Buffer<int32_t>(g.taps * rows_out);
  int32_t* nbr = map.neighbour.data();
  const Search<W> search(kernels, table, g, g.taps);
  parallel_for(threads, chunk_count(rows_out), [&](int64_t c) {
    const int64_t begin = c * kChunk, end = std::min(rows_out, begin + kChunk);
    Buffer<uint32_t> scratch(search.scratch_words());
    for (int64_t t = 0; t < g.taps; ++t)
      memset(nbr + t * rows_out + begin, 0xff, static_cast<size_t>(end - begin) * 4);
    for (int64_t i = begin; i < end; i += kStep) {
      const int m = static_cast<int>(std::min(kStep, end - i));
      const auto base = [&](int r, int a) -> int64_t {
        const int64_t v = out[(i + r) * W + a];
        return a ? v * g.stride[a - 1] : v;
      };
      search.rows(base, m, scratch.data(),
                  [&](int64_t t, int r, int32_t row) { nbr[t * rows_out + i + r] = row; });
    }
  });
}

template void search_given<2>(int32_t, const Kernels&, const Table<2>&, const Geometry&,
                              const int32_t*, int64_t, MapBuild&);
template void search_given<3>(int32_t, const Kernels&, const Table<3>&, const Geometry&,
                              const int32_t*, int64_t, MapBuild&);
template void search_given<4>(int32_t, const Kernels&, const Table<4>&, const Geometry&,
                              const int32_t*, int64_t, MapBuild&);
template void search_given<5>(int32_t, const Kernels&, const Table<5>&, const Geometry&,
                              const int32_t*, int64_t, MapBuild&);

int64_t MapBuild::count(int64_t chunk, int64_t tap, int64_t taps_here, const int64_t* found) {
  int64_t all = 0;
  for (int64_t t = 0; t < taps_here; ++t) {
    start[static_cast<size_t>((tap + t) * chunk_count(rows_out) + chunk)] = found[t];
    all += found[t];
  }
  return all;
}

void MapBuild::size(int32_t threads) {
  const int64_t chunks = chunk_count(rows_out);
  if (identity < 0) {
    start.resize(static_cast<size_t>(taps * chunks));
    parallel_for(threads, taps * chunks, [&](int64_t w) {
      const int64_t t = w / chunks, i = w % chunks * kChunk, m = std::min(rows_out - i, kChunk);
      const int32_t* row = neighbour.data() + t * rows_out + i;
      int32_t some = 0;
      for (int64_t k = 0; k < m; ++k) some += row[k] >= 0;
      start[static_cast<size_t>(w)] = some;
    });
  }
  pairs = prefix_sums(start.data(), taps * chunks);
  splits.resize(static_cast<size_t>(taps + 1));
  for (int64_t t = 0; t < taps; ++t)
    splits[static_cast<size_t>(t)] = chunks ? start[static_cast<size_t>(t * chunks)] : 0;
  splits[static_cast<size_t>(taps)] = pairs;
}

// The pairs of a chunk of rows of the taps before `identity`, or of the later ones.
void MapBuild::take_lists(int64_t chunk, bool later, int32_t* to_src, int32_t* to_dst) const {
  const int64_t chunks = chunk_count(rows_out), first = later ? identity + 1 : 0,
                last = later ? taps : identity;
  const auto count = [&](int64_t t) {
    const auto w = static_cast<size_t>(t * chunks + chunk);
    return (w + 1 < start.size() ? start[w + 1] : pairs) - start[w];
  };
  int64_t all = 0;
  for (int64_t t = first; t < last; ++t) all += count(t);
  const int32_t *src_of = (later ? after : before)[static_cast<size_t>(chunk)],
                *dst_of = src_of + all;
  for (int64_t t = first; t < last; ++t) {
    const int64_t some = count(t), to = start[static_cast<size_t>(t * chunks + chunk)];
    copy_bytes(to_src + to, src_of, some * 4);
    copy_bytes(to_dst + to, dst_of, some * 4);
    src_of += some;
    dst_of += some;
  }
}

void MapBuild::take(int32_t threads, int32_t* to_src, int32_t* to_dst) const {
  if (start.empty()) {
    const int64_t pieces = ceil_div(pairs, 1 << 16);
    parallel_for(threads, pieces, [&](int64_t i) {
      const int64_t at = i << 16, bytes = 4 * std::min<int64_t>(1 << 16, pairs - at);
      memcpy(to_src + at, src.data() + at, static_cast<size_t>(bytes));
      memcpy(to_dst + at, dst.data() + at, static_cast<size_t>(bytes));
    });
    return;
  }
  const int64_t chunks = chunk_count(rows_out);
  if (identity >= 0) {
    parallel_for(threads, chunks, [&](int64_t c) {
      take_lists(c, false, to_src, to_dst);
      int64_t at = splits[static_cast<size_t>(identity)] + c * kChunk;
      for (int64_t k = c * kChunk, e = std::min(rows_out, k + kChunk); k < e; ++k, ++at)
        to_src[at] = to_dst[at] = static_cast<int32_t>(k);
      take_lists(c, true, to_src, to_dst);
    });
    return;
  }
  parallel_for(threads, taps * chunks, [&](int64_t w) {
    const int64_t t = w / chunks, i = w % chunks * kChunk, m = std::min(rows_out - i, kChunk);
    const int64_t at = start[static_cast<size_t>(w)];
    kernels->compact(neighbour.data() + t * rows_out + i, m, static_cast<int32_t>(i), to_src + at,
                     to_dst + at);
  });
}

}  // namespace s3d

using namespace s3d;

namespace {

// Builds a map and hands it out as an opaque handle.
template <class F>
int32_t build_map(int32_t threads, int32_t path, int32_t ndim, void** handle, const F& fill) {
  *handle = nullptr;
  return guarded([&] {
    const Kernels& kernels = kernels_of(resolve_path(path));
    auto* map = new MapBuild;
    try {
      map->kernels = &kernels;
      with_width(ndim, [&](auto w) { fill(*map, kernels, w); });
      if (map->splits.empty()) map->size(threads);
    } catch (...) {
      delete map;
      throw;
    }
    *handle = map;
  });
}

}  // namespace

S3D_API int32_t s3d_map_submanifold(int32_t threads, int32_t path, const int32_t* coords, int64_t n,
                                    int32_t ndim, int32_t* table, const int64_t* kernel,
                                    const int64_t* dilation, void** handle) {
  return build_map(threads, path, ndim, handle, [&](MapBuild& map, const Kernels& kernels, auto w) {
    const Geometry g(ndim, kernel, nullptr, nullptr, dilation);
    for (int a = 0; a < ndim; ++a)
      if (g.kernel[a] % 2 == 0) throw BadArgument{};
    search_submanifold<w.value>(threads, kernels, Table<w.value>(coords, n, table), g, map);
  });
}

S3D_API int32_t s3d_map_given(int32_t threads, int32_t path, const int32_t* coords, int64_t n,
                              int32_t ndim, int32_t* table, const int32_t* out_coords,
                              int64_t rows_out, const int64_t* kernel, const int64_t* stride,
                              const int64_t* padding, const int64_t* dilation, void** handle) {
  return build_map(threads, path, ndim, handle, [&](MapBuild& map, const Kernels& kernels, auto w) {
    const Geometry g(ndim, kernel, stride, padding, dilation);
    search_given<w.value>(threads, kernels, Table<w.value>(coords, n, table), g, out_coords,
                          rows_out, map);
  });
}

S3D_API int32_t s3d_map_footprint(int32_t threads, int32_t path, const int32_t* coords, int64_t n,
                                  int32_t ndim, const int64_t* kernel, const int64_t* stride,
                                  const int64_t* padding, const int64_t* dilation,
                                  const int64_t* shape, int32_t transposed, void** handle) {
  return build_map(threads, path, ndim, handle, [&](MapBuild& map, const Kernels&, auto w) {
    const Geometry g(ndim, kernel, stride, padding, dilation);
    build_footprint<w.value>(threads, coords, n, g, shape, transposed != 0, map);
  });
}

S3D_API int32_t s3d_map_floor(int32_t threads, int32_t path, const int32_t* coords, int64_t n,
                              int32_t ndim, int32_t* table, const int64_t* kernel,
                              const int64_t* stride, const int64_t* padding,
                              const int64_t* dilation, void** handle) {
  return build_map(threads, path, ndim, handle, [&](MapBuild& map, const Kernels& kernels, auto w) {
    const Geometry g(ndim, kernel, stride, padding, dilation);
    build_floor<w.value>(threads, kernels, Table<w.value>(coords, n, table), g, map);
  });
}

S3D_API void s3d_map_sizes(const void* handle, int64_t* pairs, int64_t* rows_out) {
  const auto* map = static_cast<const MapBuild*>(handle);
  *pairs = map->pairs;
  *rows_out = map->rows_out;
}

S3D_API int32_t s3d_map_take(int32_t threads, void* handle, int32_t* out_coords, int32_t* src,
                             int32_t* dst, int64_t* splits) {
  auto* map = static_cast<MapBuild*>(handle);
  const int32_t status = guarded([&] {
    if (out_coords && map->out_coords.size())
      memcpy(out_coords, map->out_coords.data(), static_cast<size_t>(map->out_coords.size()) * 4);
    std::copy(map->splits.begin(), map->splits.end(), splits);
    map->take(threads, src, dst);
  });
  delete map;
  return status;
}

S3D_API void s3d_map_free(void* handle) { delete static_cast<MapBuild*>(handle); }
