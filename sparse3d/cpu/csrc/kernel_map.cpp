// Kernel maps of known outputs: submanifold (half of the taps searched, the other half mirrored)
// and given. Also the compaction of a neighbour table into pairs, and the handles of the C ABI.
#include "kernel_map.h"

#include "abi.h"
#include "coordinates.h"
#include "kernel_map_created.h"

namespace s3d {
namespace {

constexpr int64_t kStep = 16;  // rows hashed together

struct Tap {
  int64_t offset[5];  // batch included
  uint32_t hash;
};

std::vector<Tap> taps_of(const Geometry& g, int64_t count) {
  std::vector<Tap> taps(static_cast<size_t>(count));
  for (int64_t t = 0; t < count; ++t) {
    Tap& tap = taps[static_cast<size_t>(t)];
    tap.offset[0] = 0;
    g.offset(t, tap.offset + 1);
    tap.hash = 0;
    for (int a = 0; a <= g.ndim; ++a) tap.hash += static_cast<uint32_t>(tap.offset[a]) * kFactor[a];
  }
  return taps;
}

// The row of base + offset, or -1. Hashes wrap, coordinates must not: a sum beyond int32 is absent.
template <int W>
int32_t probe_moved(const Table<W>& table, uint32_t hash, const int64_t* base,
                    const int64_t* offset) {
  int32_t key[W];
  for (int a = 0; a < W; ++a) {
    const int64_t c = base[a] + offset[a];
    if (c != static_cast<int32_t>(c)) return -1;
    key[a] = static_cast<int32_t>(c);
  }
  return table.probe(hash, key);
}

// Searches taps [0, taps.size()) for rows [i, i + m); base holds m rows of W coordinates. What
// passes the filter waits until there is a batch, whose reads of a large table then overlap.
template <int W, class Found>
void search_rows(const Kernels& kernels, const Table<W>& table, const std::vector<Tap>& taps,
                 const int64_t* base, int m, const Found& found) {
  struct Candidate {
    uint32_t tap, row, hash;
  };
  constexpr int kBatch = 48;
  Candidate batch[kBatch + kStep];
  int waiting = 0;
  const auto probe_all = [&] {
    for (int i = 0; i < waiting; ++i) table.fetch_row(batch[i].hash);
    for (int i = 0; i < waiting; ++i) {
      const Candidate& c = batch[i];
      const int32_t row =
          probe_moved<W>(table, c.hash, base + int64_t(c.row) * W, taps[c.tap].offset);
      if (row >= 0) found(static_cast<int64_t>(c.tap), static_cast<int>(c.row), row);
    }
    waiting = 0;
  };
  uint32_t linear[kStep] = {}, hashes[kStep];
  for (int r = 0; r < m; ++r) linear[r] = linear_hash<W>(base + r * W);
  for (size_t t = 0; t < taps.size(); ++t) {
    uint32_t live =
        kernels.maybe16(linear, taps[t].hash, table.filter(), table.filter_bits(), hashes);
    live &= (1u << m) - 1;
    for (; live; live &= live - 1) {
      const auto r = static_cast<uint32_t>(__builtin_ctz(live));
      table.fetch_slot(hashes[r]);
      batch[waiting++] = {static_cast<uint32_t>(t), r, hashes[r]};
    }
    if (waiting >= kBatch) probe_all();
  }
  probe_all();
}

template <int W>
void search_submanifold(int32_t threads, const Kernels& kernels, const Table<W>& table,
                        const Geometry& g, MapBuild& map) {
  const int64_t n = table.rows();
  if (table.duplicates()) {  // a mirrored entry would have two writers
    search_given<W>(threads, kernels, table, g, table.row(0), n, map);
    return;
  }
  const int64_t centre = g.taps / 2, chunks = chunk_count(n);
  map.taps = g.taps;
  map.rows_out = n;
  map.identity = centre;
  map.neighbour = Buffer<int32_t>(centre * n);
  map.start.assign(static_cast<size_t>(g.taps * chunks), 0);
  map.searched.resize(static_cast<size_t>(chunks));
  map.searched_in.reserve(3 * n);
  int32_t* mirrored = map.neighbour.data();  // tap K-1-t at row centre-1-t
  const std::vector<Tap> taps = taps_of(g, centre);
  parallel_for(threads, chunks, [&](int64_t c) {
    const int64_t i = c * kChunk, rows = std::min(n - i, kChunk);
    for (int64_t t = 0; t < centre; ++t)
      memset(mirrored + t * n + i, 0xff, static_cast<size_t>(rows) * 4);
  });
  // What a chunk finds stays in a cache until its pairs are counted and written.
  parallel_for(threads, chunks, [&](int64_t c) {
    const int64_t begin = c * kChunk, end = std::min(n, begin + kChunk), rows = end - begin;
    Buffer<int32_t> near(centre * rows);
    if (centre) memset(near.data(), 0xff, static_cast<size_t>(centre * rows) * 4);
    Buffer<int64_t> count(centre);
    std::fill(count.data(), count.data() + centre, int64_t(0));
    for (int64_t i = begin; i < end; i += kStep) {
      const int m = static_cast<int>(std::min(kStep, end - i));
      int64_t base[kStep * W];
      for (int k = 0; k < m * W; ++k) base[k] = table.row(i)[k];
      search_rows<W>(kernels, table, taps, base, m, [&](int64_t t, int r, int32_t row) {
        near[t * rows + i - begin + r] = row;
        ++count[t];
        mirrored[(centre - 1 - t) * n + row] = static_cast<int32_t>(i + r);
      });
    }
    int64_t all = 0;
    for (int64_t t = 0; t < centre; ++t) {
      map.start[static_cast<size_t>(t * chunks + c)] = count[t];
      all += count[t];
    }
    int32_t* pairs = map.searched_in.take(2 * all);
    for (int64_t t = 0, at = 0; t < centre; at += count[t++])
      if (count[t])
        kernels.compact(near.data() + t * rows, rows, static_cast<int32_t>(begin), pairs + at,
                        pairs + all + at);
    map.searched[static_cast<size_t>(c)] = pairs;
  });
}

}  // namespace

template <int W>
void search_given(int32_t threads, const Kernels& kernels, const Table<W>& table, const Geometry& g,
                  const int32_t* out, int64_t rows_out, MapBuild& map) {
  map.taps = g.taps;
  map.rows_out = rows_out;
  map.neighbour = Buffer<int32_t>(g.taps * rows_out);
  int32_t* nbr = map.neighbour.data();
  const std::vector<Tap> taps = taps_of(g, g.taps);
  parallel_for(threads, chunk_count(rows_out), [&](int64_t c) {
    const int64_t begin = c * kChunk, end = std::min(rows_out, begin + kChunk);
    for (int64_t t = 0; t < g.taps; ++t)
      memset(nbr + t * rows_out + begin, 0xff, static_cast<size_t>(end - begin) * 4);
    for (int64_t i = begin; i < end; i += kStep) {
      const int m = static_cast<int>(std::min(kStep, end - i));
      int64_t base[kStep * W];
      for (int r = 0; r < m; ++r) {
        base[r * W] = out[(i + r) * W];
        for (int a = 1; a < W; ++a) base[r * W + a] = out[(i + r) * W + a] * g.stride[a - 1];
      }
      search_rows<W>(kernels, table, taps, base, m,
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

void MapBuild::count_neighbours(int32_t threads) {
  const int64_t chunks = chunk_count(rows_out);
  start.resize(static_cast<size_t>(taps * chunks));
  const int64_t known = std::max<int64_t>(0, identity) * chunks;
  parallel_for(threads, taps * chunks - known, [&](int64_t w) {
    w += known;
    const int64_t t = w / chunks, i = w % chunks * kChunk, m = std::min(rows_out - i, kChunk);
    int64_t found = m;
    if (t != identity) {
      const int32_t* row = neighbours(t) + i;
      int32_t some = 0;
      for (int64_t k = 0; k < m; ++k) some += row[k] >= 0;
      found = some;
    }
    start[static_cast<size_t>(w)] = found;
  });
  pairs = prefix_sums(start.data(), taps * chunks);
  splits.resize(static_cast<size_t>(taps + 1));
  for (int64_t t = 0; t < taps; ++t)
    splits[static_cast<size_t>(t)] = chunks ? start[static_cast<size_t>(t * chunks)] : 0;
  splits[static_cast<size_t>(taps)] = pairs;
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
  const int64_t chunks = chunk_count(rows_out), known = std::max<int64_t>(0, identity) * chunks;
  parallel_for(threads, static_cast<int64_t>(searched.size()), [&](int64_t c) {
    int64_t all = 0;
    for (int64_t t = 0; t < identity; ++t) {
      const auto w = static_cast<size_t>(t * chunks + c);
      all += start[w + 1] - start[w];
    }
    const int32_t *from_src = searched[static_cast<size_t>(c)], *from_dst = from_src + all;
    for (int64_t t = 0; t < identity; ++t) {
      const auto w = static_cast<size_t>(t * chunks + c);
      const int64_t count = start[w + 1] - start[w];
      copy_bytes(to_src + start[w], from_src, count * 4);
      copy_bytes(to_dst + start[w], from_dst, count * 4);
      from_src += count;
      from_dst += count;
    }
  });
  parallel_for(threads, taps * chunks - known, [&](int64_t w) {
    w += known;
    const int64_t t = w / chunks, i = w % chunks * kChunk, m = std::min(rows_out - i, kChunk);
    int32_t *s = to_src + start[static_cast<size_t>(w)],
            *d = to_dst + start[static_cast<size_t>(w)];
    if (t == identity)
      for (int64_t k = i; k < i + m; ++k) *s++ = *d++ = static_cast<int32_t>(k);
    else
      kernels->compact(neighbours(t) + i, m, static_cast<int32_t>(i), s, d);
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
      if (map->neighbour.size() || map->splits.empty()) map->count_neighbours(threads);
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
