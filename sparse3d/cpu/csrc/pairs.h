// Pairs sorted by output row inside each tap: a tile of outputs is then a sub-range of every tap.
#pragma once

#include "common.h"
#include "thread_pool.h"

namespace s3d {

// Header of a plan: word 0 holds these flags, word 1 the tap whose pairs are (0, 0), (1, 1), ... or
// -1.
enum PairFlags : int64_t {
  kSorted = 1,    // dst ascends in every tap
  kMirror = 2,    // src ascends, and tap K-1-t is tap t with the roles swapped: read it instead
  kDisjoint = 4,  // every output row has exactly one pair
};

struct Range {
  int64_t begin, end;
};

inline Range tile_range(const int32_t* dst, const int64_t* splits, int64_t tap, int64_t row0,
                        int64_t row1) {
  const int32_t *a = dst + splits[tap], *b = dst + splits[tap + 1];
  const int32_t* low = std::lower_bound(a, b, row0, [](int32_t v, int64_t r) { return v < r; });
  const int32_t* high = std::lower_bound(low, b, row1, [](int32_t v, int64_t r) { return v < r; });
  return {low - dst, high - dst};
}

}  // namespace s3d
