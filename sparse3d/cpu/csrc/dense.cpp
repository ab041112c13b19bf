// Rows into a dense grid and out of it. Bytes are copied: no arithmetic, one code for all types.
#include "abi.h"
#include "table.h"

namespace s3d {
namespace {

// Cell of a row in [batch, *shape], or -1 outside.
template <int W>
int64_t cell_of(const int32_t* row, int64_t batches, const int64_t* shape) {
  if (row[0] < 0 || row[0] >= batches) return -1;
  int64_t cell = row[0];
  for (int a = 0; a < W - 1; ++a) {
    if (row[a + 1] < 0 || row[a + 1] >= shape[a]) return -1;
    cell = cell * shape[a] + row[a + 1];
  }
  return cell;
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int32_t s3d_dense_scatter(int32_t threads, const void* x, int64_t row_bytes,
                                  const int32_t* coords, int64_t n, int32_t ndim, int64_t batches,
                                  const int64_t* shape, void* dense) {
  return guarded([&] {
    int64_t bytes = row_bytes * batches;
    for (int a = 0; a < ndim; ++a) bytes *= shape[a];
    const int64_t piece = int64_t(1) << 20;
    prefer_huge_pages(dense, static_cast<size_t>(bytes));
    parallel_for(threads, ceil_div(bytes, piece), [&](int64_t i) {
      memset(static_cast<char*>(dense) + i * piece, 0,
             static_cast<size_t>(std::min(piece, bytes - i * piece)));
    });
    with_width(ndim, [&](auto w) {
      constexpr int W = w.value;
      Buffer<int32_t> words(table_words(n));
      Table<W> table(coords, n, words.data());
      table.build(threads);
      const bool check = table.duplicates();
      parallel_for(threads, chunk_count(n), [&](int64_t c) {
        for (int64_t i = c * kChunk, e = std::min(n, i + kChunk); i < e; ++i) {
          const int64_t cell = cell_of<W>(coords + i * W, batches, shape);
          if (cell < 0 || (check && table.find(coords + i * W) != i)) continue;
          copy_bytes(static_cast<char*>(dense) + cell * row_bytes,
                     static_cast<const char*>(x) + i * row_bytes, row_bytes);
        }
      });
    });
  });
}

S3D_API int32_t s3d_dense_gather(int32_t threads, const void* dense, int64_t row_bytes,
                                 const int32_t* coords, int64_t n, int32_t ndim, int64_t batches,
                                 const int64_t* shape, void* y) {
  return guarded([&] {
    with_width(ndim, [&](auto w) {
      constexpr int W = w.value;
      parallel_for(threads, chunk_count(n), [&](int64_t c) {
        for (int64_t i = c * kChunk, e = std::min(n, i + kChunk); i < e; ++i) {
          const int64_t cell = cell_of<W>(coords + i * W, batches, shape);
          char* to = static_cast<char*>(y) + i * row_bytes;
          if (cell < 0)
            clear_bytes(to, row_bytes);
          else
            copy_bytes(to, static_cast<const char*>(dense) + cell * row_bytes, row_bytes);
        }
      });
    });
  });
}
