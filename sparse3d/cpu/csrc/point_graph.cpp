// Graclus matching and random walks: serial node by node, walks side by side.
#include "common.h"
#include "thread_pool.h"

namespace s3d {
namespace {

// splitmix64 of (seed, counter); the contract names the same constants.
uint64_t mix(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

struct Draws {
  uint64_t seed, counter = 0;
  uint64_t bits() { return mix(seed, ++counter); }
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(((bits() >> 32) * static_cast<uint64_t>(limit)) >> 32);
  }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
};

struct Graph {
  const int64_t* rowptr;
  const int64_t* col;
  bool reaches(int64_t from, int64_t to) const {
    for (int64_t e = rowptr[from]; e < rowptr[from + 1]; ++e) {
      if (col[e] == to) return true;
    }
    return false;
  }
};

struct Bias {
  double back, near, far;
};

int64_t biased_edge(const Graph& graph, Draws& draws, const Bias& bias, int64_t before,
                    int64_t here, bool first) {
  const int64_t low = graph.rowptr[here], degree = graph.rowptr[here + 1] - low;
  for (;;) {
    const int64_t edge = low + draws.below(degree);
    if (first || degree == 1) return edge;
    const double chance = draws.unit();
    const int64_t there = graph.col[edge];
    const double limit = there == before                ? bias.back
                         : graph.reaches(there, before) ? bias.near
                                                        : bias.far;
    if (chance < limit) return edge;
  }
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int32_t s3d_graclus(const int64_t* rowptr, const int64_t* col, const double* weight,
                            const int64_t* order, int64_t nodes, int64_t* mate) {
  std::fill(mate, mate + nodes, int64_t(-1));
  for (int64_t i = 0; i < nodes; ++i) {
    const int64_t node = order[i];
    if (mate[node] >= 0) continue;
    int64_t partner = node;
    double heaviest = 0;
    for (int64_t e = rowptr[node]; e < rowptr[node + 1]; ++e) {
      const int64_t other = col[e];
      if (mate[other] >= 0 || other == node) continue;
      if (!weight) {
        partner = other;
        break;
      }
      if (weight[e] >= heaviest) {
        partner = other;
        heaviest = weight[e];
      }
    }
    mate[node] = mate[partner] = std::min(node, partner);
  }
  return kOk;
}

S3D_API int32_t s3d_random_walk(const int64_t* rowptr, const int64_t* col, const int64_t* start,
                                const float* uniform, int64_t walks, int64_t length, double p,
                                double q, int64_t seed, int32_t threads, int64_t* nodes,
                                int64_t* edges) {
  const Graph graph{rowptr, col};
  const double largest = std::max(std::max(1 / p, 1.0), 1 / q);
  const Bias bias{1 / p / largest, 1 / largest, 1 / q / largest};
  return guarded([&] {
    parallel_for(threads, walks, [&](int64_t walk) {
      Draws draws{mix(static_cast<uint64_t>(seed), static_cast<uint64_t>(walk))};
      int64_t before = -1, here = start[walk];
      int64_t* path = nodes + walk * (length + 1);
      path[0] = here;
      for (int64_t step = 0; step < length; ++step) {
        const int64_t degree = rowptr[here + 1] - rowptr[here];
        int64_t edge = -1, there = here;
        if (degree > 0) {
          edge = uniform ? rowptr[here] + static_cast<int64_t>(uniform[walk * length + step] *
                                                               static_cast<float>(degree))
                         : biased_edge(graph, draws, bias, before, here, step == 0);
          there = col[edge];
        }
        path[step + 1] = there;
        edges[walk * length + step] = edge;
        before = here;
        here = there;
      }
    });
  });
}
