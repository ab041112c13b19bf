// Submanifold maps: half of the taps searched, the other half mirrored.
#include "bricks.h"
#include "kernel_map.h"
#include "kernel_map_bricks.h"
#include "kernel_map_mirror.h"
#include "kernel_map_search.h"

namespace s3d {
namespace {

// Pairs of distinct rows; walk(begin, end, found) calls found(tap, row, neighbour) for every tap
// before the centre, in the order of rows.
template <class Walk>
void mirrored_pairs(int32_t threads, int64_t n, const Geometry& g, MapBuild& map,
                    const Walk& walk) {
  const int64_t centre = g.taps / 2, chunks = chunk_count(n);
  map.taps = g.taps;
  map.rows_out = n;
  map.identity = centre;
  map.start.assign(static_cast<size_t>(g.taps * chunks), 0);
  map.lists.resize(static_cast<size_t>(chunks));
  map.slabs.reserve(3 * n);
  if (chunks == 0) return;
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
    walk(begin, end, found);
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

// The half search in a table.
template <int W>
void search_table(int32_t threads, const Kernels& kernels, const Table<W>& table, const Geometry& g,
                  MapBuild& map) {
  const int64_t n = table.rows();
  if (table.duplicates() || g.taps / 2 > Mirror::kMostTaps) {  // one entry would have two writers
    search_given<W>(threads, kernels, table, g, table.row(0), n, map);
    return;
  }
  const Search<W> search(kernels, table, g, g.taps / 2);
  mirrored_pairs(threads, n, g, map, [&](int64_t begin, int64_t end, const auto& found) {
    typename Search<W>::template Walk<std::decay_t<decltype(found)>> walk(search, found);
    for (int64_t i = begin; i < end; i += kStep) {
      const int m = static_cast<int>(std::min(kStep, end - i));
      if (i + kStep < end) table.fetch_filter(i + kStep, std::min(2 * kStep, end - i) - kStep);
      const int32_t* rows_here = table.row(i);
      const auto base = [&](int r, int a) -> int64_t { return rows_here[r * W + a]; };
      walk.rows(base, i, m);
    }
    walk.finish();
  });
}

}  // namespace

template <int W>
void build_submanifold(int32_t threads, const Kernels& kernels, const int32_t* coords, int64_t n,
                       int32_t* table, const Geometry& g, MapBuild& map) {
  if (W == 4 && BrickSearch::serves(g)) {
    Bricks bricks(coords, n);
    if (bricks.build(threads)) {
      const BrickSearch search(bricks, g);
      mirrored_pairs(threads, n, g, map, [&](int64_t begin, int64_t end, const auto& found) {
        search.walk(begin, end, found);
      });
      return;
    }
  }
  Buffer<int32_t> own(table ? 0 : table_words(n));
  Table<W> sites(coords, n, table ? table : own.data());
  if (!table) sites.build(threads);
  search_table<W>(threads, kernels, sites, g, map);
}

template void build_submanifold<2>(int32_t, const Kernels&, const int32_t*, int64_t, int32_t*,
                                   const Geometry&, MapBuild&);
template void build_submanifold<3>(int32_t, const Kernels&, const int32_t*, int64_t, int32_t*,
                                   const Geometry&, MapBuild&);
template void build_submanifold<4>(int32_t, const Kernels&, const int32_t*, int64_t, int32_t*,
                                   const Geometry&, MapBuild&);
template void build_submanifold<5>(int32_t, const Kernels&, const int32_t*, int64_t, int32_t*,
                                   const Geometry&, MapBuild&);

}  // namespace s3d
