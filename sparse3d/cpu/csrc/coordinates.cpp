#include "coordinates.h"

#include "abi.h"

using namespace s3d;

S3D_API int32_t s3d_abi_version() { return kAbiVersion; }

S3D_API int64_t s3d_table_words(int64_t n) { return table_words(n); }

S3D_API int32_t s3d_coordinate_table(int32_t threads, const int32_t* coords, int64_t n,
                                     int32_t ndim, int32_t* table) {
  return guarded(
      [&] { with_width(ndim, [&](auto w) { Table<w.value>(coords, n, table).build(threads); }); });
}

S3D_API int32_t s3d_coordinate_lookup(int32_t threads, const int32_t* coords, int64_t n,
                                      int32_t ndim, int32_t* table, const int32_t* queries,
                                      int64_t count, int32_t* out) {
  return guarded([&] {
    with_width(ndim, [&](auto w) {
      constexpr int W = w.value;
      const Table<W> t(coords, n, table);
      parallel_for(threads, chunk_count(count), [&](int64_t c) {
        for (int64_t i = c * kChunk, e = std::min(count, i + kChunk); i < e; ++i)
          out[i] = t.find(queries + i * W);
      });
    });
  });
}

S3D_API int32_t s3d_coordinate_unique(int32_t threads, const int32_t* coords, int64_t n,
                                      int32_t ndim, int64_t* first, int64_t* inverse,
                                      int64_t* count) {
  return guarded([&] {
    with_width(ndim, [&](auto w) {
      const Unique u = unique_rows<w.value>(threads, coords, n);
      *count = u.count;
      for (int64_t j = 0; j < u.count; ++j) first[j] = u.first[j];
      parallel_for(threads, chunk_count(n), [&](int64_t c) {
        for (int64_t i = c * kChunk, e = std::min(n, i + kChunk); i < e; ++i)
          inverse[i] = u.rank[i];
      });
    });
  });
}
