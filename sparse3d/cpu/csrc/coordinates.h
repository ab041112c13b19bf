// Unique coordinate rows in the library's order: by batch id, then first occurrence.
#pragma once

#include "common.h"
#include "order.h"
#include "table.h"

namespace s3d {

struct Unique {
  Buffer<int32_t> rank;   // of every row: its created row
  Buffer<int32_t> first;  // of every created row: the first row that holds it
  int64_t count = 0;
};

template <int W>
Unique unique_rows(int32_t threads, const int32_t* rows, int64_t n) {
  Unique u;
  Buffer<int32_t> words(table_words(n));
  Table<W> table(rows, n, words.data());
  table.build(threads);
  const int64_t chunks = chunk_count(n);
  u.rank = Buffer<int32_t>(n);
  Buffer<int64_t> start(chunks + 1);
  parallel_for(threads, chunks, [&](int64_t c) {
    int64_t own = 0;
    for (int64_t i = c * kChunk, e = std::min(n, i + kChunk); i < e; ++i) {
      u.rank[i] = table.probe(rows + i * W);
      own += u.rank[i] == i;
    }
    start[c] = own;
  });
  u.count = prefix_sums(start.data(), chunks);
  Buffer<int32_t> first(u.count), batch(u.count), created(n);
  parallel_for(threads, chunks, [&](int64_t c) {
    int64_t at = start[c];
    for (int64_t i = c * kChunk, e = std::min(n, i + kChunk); i < e; ++i) {
      if (u.rank[i] != i) continue;
      created[i] = static_cast<int32_t>(at);
      batch[at] = rows[i * W];
      first[at++] = static_cast<int32_t>(i);
    }
  });
  Buffer<int32_t> place(u.count);
  if (place_by_batch(batch.data(), u.count, place.data())) {
    u.first = Buffer<int32_t>(u.count);
    for (int64_t j = 0; j < u.count; ++j) {
      created[first[j]] = place[j];
      u.first[place[j]] = first[j];
    }
  } else {
    u.first = std::move(first);
  }
  parallel_for(threads, chunks, [&](int64_t c) {
    for (int64_t i = c * kChunk, e = std::min(n, i + kChunk); i < e; ++i)
      u.rank[i] = created[u.rank[i]];
  });
  return u;
}

}  // namespace s3d
