// Kernel maps of known outputs: submanifold (half of the taps searched, the other half mirrored)
// and given. Also the compaction of neighbours into pairs, and the handles of the C ABI.
#include "kernel_map.h"

#include "abi.h"
#include "coordinates.h"
#include "kernel_map_created.h"
#include "kernel_map_mirror.h"

namespace s3d {
namespace {

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
  map.lists.resize(static_cast<size_t>(chunks));
  map.slabs.reserve(3 * n);
  if (chunks == 0) return;
  const Search<W> search(kernels, table, g, centre);
  const auto mirror = std::make_shared<Mirror>(n, centre);
  map.mirror = mirror;
  std::vector<std::atomic<int64_t>> mirrored(static_cast<size_t>(centre * chunks));
  parallel_for(threads, chunks, [&](int64_t c) {
    const int64_t begin = c * kChunk, end = std::min(n, begin + kChunk), rows = end - begin;
    Buffer<int32_t> src(centre * rows), dst(centre * rows);  // of every tap; little is touched
    Buffer<int64_t> count(centre);
    std::fill(count.data(), count.data() + centre, int64_t(0));
    const auto found = [rows, to_src = src.data(), to_dst = dst.data(), counts = count.data()](
                           int32_t t, int32_t row, int32_t neighbour) {
      const int64_t at = t * rows + counts[t]++;
      to_src[at] = neighbour;
      to_dst[at] = row;
    };
    typename Search<W>::template Walk<decltype(found)> walk(search, found);
    for (int64_t i = begin; i < end; i += kStep) {
      const int m = static_cast<int>(std::min(kStep, end - i));
      if (i + kStep < end) table.fetch_filter(i + kStep, std::min(2 * kStep, end - i) - kStep);
      const int32_t* rows_here = table.row(i);
      const auto base = [&](int r, int a) -> int64_t { return rows_here[r * W + a]; };
      walk.rows(base, i, m);
    }
    walk.finish();
    int64_t all = 0;
    for (int64_t t = 0; t < centre; ++t) {
      map.start[static_cast<size_t>(t * chunks + c)] = count[t];
      all += count[t];
    }
    int32_t* pairs = map.slabs.take(2 * all);
    for (int64_t t = 0, at = 0; t < centre; at += count[t++]) {
      copy_bytes(pairs + at, src.data() + t * rows, count[t] * 4);
      copy_bytes(pairs + all + at, dst.data() + t * rows, count[t] * 4);
    }
    map.lists[static_cast<size_t>(c)] = pairs;
    map.start[static_cast<size_t>(centre * chunks + c)] = rows;
    mirror->note(c, count.data(), pairs, pairs + all, mirrored.data());
  });
  for (size_t i = 0, after = static_cast<size_t>((centre + 1) * chunks); i < mirrored.size(); ++i)
    map.start[after + i] = mirrored[i].load(std::memory_order_relaxed);
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
    for (int64_t t = 0; t < g.taps; ++t)
      memset(nbr + t * rows_out + begin, 0xff, static_cast<size_t>(end - begin) * 4);
    const auto found = [=](int32_t t, int32_t row, int32_t neighbour) {
      nbr[t * rows_out + row] = neighbour;
    };
    typename Search<W>::template Walk<decltype(found)> walk(search, found);
    for (int64_t i = begin; i < end; i += kStep) {
      const int m = static_cast<int>(std::min(kStep, end - i));
      const auto base = [&](int r, int a) -> int64_t {
        const int64_t v = out[(i + r) * W + a];
        return a ? v * g.stride[a - 1] : v;
      };
      walk.rows(base, i, m);
    }
    walk.finish();
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

// The pairs of a chunk of rows of the taps up to `identity`.
void MapBuild::take_chunk(int64_t chunk, int32_t* to_src, int32_t* to_dst) const {
  const int64_t chunks = chunk_count(rows_out);
  const auto count = [&](int64_t t) {
    const auto w = static_cast<size_t>(t * chunks + chunk);
    return (w + 1 < start.size() ? start[w + 1] : pairs) - start[w];
  };
  int64_t all = 0;
  for (int64_t t = 0; t < identity; ++t) all += count(t);
  const int32_t *src_of = lists[static_cast<size_t>(chunk)], *dst_of = src_of + all;
  for (int64_t t = 0; t < identity; ++t) {
    const int64_t some = count(t), to = start[static_cast<size_t>(t * chunks + chunk)];
    copy_bytes(to_src + to, src_of, some * 4);
    copy_bytes(to_dst + to, dst_of, some * 4);
    src_of += some;
    dst_of += some;
  }
  int64_t at = start[static_cast<size_t>(identity * chunks + chunk)];
  for (int64_t k = chunk * kChunk, e = std::min(rows_out, k + kChunk); k < e; ++k, ++at)
    to_src[at] = to_dst[at] = static_cast<int32_t>(k);
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
    const int64_t groups = mirror ? mirror->groups() : 0;
    parallel_for(threads, chunks + groups, [&](int64_t i) {
      if (i < chunks)
        take_chunk(i, to_src, to_dst);
      else
        mirror->place(i - chunks, *kernels, start.data() + (identity + 1) * chunks, to_src, to_dst);
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
