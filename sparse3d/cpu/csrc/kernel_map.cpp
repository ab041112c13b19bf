// Kernel maps of given outputs, the compaction of neighbours into pairs, and the handles of the C
// ABI.
#include "kernel_map.h"

#include "abi.h"
#include "coordinates.h"
#include "kernel_map_created.h"
#include "kernel_map_mirror.h"
#include "kernel_map_search.h"

namespace s3d {

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
    build_submanifold<w.value>(threads, kernels, coords, n, table, g, map);
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
