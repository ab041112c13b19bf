// Stable orders: radix sort of pairs, and the rank of created rows by batch.
#pragma once

#include "common.h"
#include "thread_pool.h"

namespace s3d {

// Sorts (key, value) by key, keys in [0, limit), equal keys in their old order. The result lies in
// key and value; spare arrays are as long.
inline void stable_sort_pairs(int32_t* key, int32_t* value, int32_t* spare_key,
                              int32_t* spare_value, int64_t n, int64_t limit) {
  bool sorted = true;
  for (int64_t i = 1; i < n && sorted; ++i) sorted = key[i - 1] <= key[i];
  if (sorted) return;
  constexpr int kDigit = 11;
  const int bits = std::max(1, log2_ceil(limit)), passes = static_cast<int>(ceil_div(bits, kDigit));
  int32_t *k = key, *v = value, *k2 = spare_key, *v2 = spare_value;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = pass * kDigit;
    int64_t start[(1 << kDigit) + 1] = {};
    for (int64_t i = 0; i < n; ++i)
      ++start[((static_cast<uint32_t>(k[i]) >> shift) & ((1 << kDigit) - 1)) + 1];
    for (int d = 0; d < (1 << kDigit); ++d) start[d + 1] += start[d];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = start[(static_cast<uint32_t>(k[i]) >> shift) & ((1 << kDigit) - 1)]++;
      k2[at] = k[i];
      v2[at] = v[i];
    }
    std::swap(k, k2);
    std::swap(v, v2);
  }
  if (k != key) {
    memcpy(key, k, static_cast<size_t>(n) * 4);
    memcpy(value, v, static_cast<size_t>(n) * 4);
  }
}

// place[i] = position of element i (in order of first occurrence) once elements are put in order of
// batch id, otherwise unmoved. False, and place untouched, when the ids never decrease: the order
// is the given one.
inline bool place_by_batch(const int32_t* batch, int64_t n, int32_t* place) {
  bool sorted = true;
  for (int64_t i = 1; i < n && sorted; ++i) sorted = batch[i - 1] <= batch[i];
  if (sorted) return false;
  Buffer<int32_t> key(n), value(n), spare_key(n), spare_value(n);
  for (int64_t i = 0; i < n; ++i) {
    key[i] = static_cast<int32_t>(static_cast<uint32_t>(batch[i]) ^ 0x80000000u);
    value[i] = static_cast<int32_t>(i);
  }
  Buffer<int64_t> start((1 << 16) + 1);
  const auto digits = [&](int shift) {
    std::fill(start.data(), start.data() + (1 << 16) + 1, int64_t(0));
    for (int64_t i = 0; i < n; ++i)
      ++start[((static_cast<uint32_t>(key[i]) >> shift) & 0xffff) + 1];
    for (int d = 0; d < (1 << 16); ++d) start[d + 1] += start[d];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = start[(static_cast<uint32_t>(key[i]) >> shift) & 0xffff]++;
      spare_key[at] = key[i];
      spare_value[at] = value[i];
    }
    memcpy(key.data(), spare_key.data(), static_cast<size_t>(n) * 4);
    memcpy(value.data(), spare_value.data(), static_cast<size_t>(n) * 4);
  };
  digits(0);
  digits(16);
  for (int64_t i = 0; i < n; ++i) place[value[i]] = static_cast<int32_t>(i);
  return true;
}

// Exclusive prefix sums in place; returns the total.
inline int64_t prefix_sums(int64_t* counts, int64_t n) {
  int64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t c = counts[i];
    counts[i] = sum;
    sum += c;
  }
  return sum;
}

}  // namespace s3d
