// kNN and ball query: trees or scans, clouds and chunks of queries spread over threads.
#include <limits>
#include <vector>

#include "common.h"
#include "point_index.h"
#include "point_kernels.h"
#include "thread_pool.h"

namespace s3d {
namespace {

// Rows of the table of clouds: query begin and end, reference begin and end, base.
struct Cloud {
  int64_t query, query_end, reference, reference_end, base;
  int64_t queries() const { return query_end - query; }
  int64_t references() const { return reference_end - reference; }
};

constexpr int64_t kQueries = 128;  // of a work item; results do not depend on it
// Below these a scan is cheaper than making a tree. Measured 2026-11, Zen 3: a tree costs about 25
// ns a point and 0.4 us a query, a scan 0.35 ns a pair.
constexpr int64_t kTreePoints = 1024, kTreeQueries = 64;

struct Item {
  int64_t cloud, begin, end;
};

std::vector<Item> split(const Cloud* clouds, int64_t count) {
  std::vector<Item> items;
  for (int64_t c = 0; c < count; ++c) {
    for (int64_t at = 0; at < clouds[c].queries(); at += kQueries) {
      items.push_back({c, at, std::min(at + kQueries, clouds[c].queries())});
    }
  }
  return items;
}

// Runs body(cloud, threads inside) for every cloud: one large cloud gets all threads.
template <class F>
void each_cloud(int32_t threads, int64_t count, const F& body) {
  if (count == 1) return body(0, threads);
  parallel_for(threads, count, [&](int64_t c) { body(c, 1); });
}

// Queries that belong to no cloud are all padding.
template <class T>
void pad_gaps(const Cloud* clouds, int64_t count, int64_t queries, int64_t k, T distance,
              T* distances, int64_t* indices) {
  int64_t at = 0;
  for (int64_t c = 0; c <= count; ++c) {
    const int64_t stop = c < count ? clouds[c].query : queries;
    if (stop > at) {
      std::fill(distances + at * k, distances + stop * k, distance);
      std::fill(indices + at * k, indices + stop * k, int64_t(-1));
    }
    if (c < count) at = std::max(at, clouds[c].query_end);
  }
}

template <class T>
struct OwnedColumns {
  Buffer<T> memory;
  Columns<T> columns{};

  void make(const T* points, int32_t dim, int64_t n) {
    const int64_t stride = ceil_div(n, kTile) * kTile;
    memory = Buffer<T>(stride * dim);
    columns = {n, stride, dim, memory.data()};
    for (int32_t axis = 0; axis < dim; ++axis) {
      T* column = memory.data() + axis * stride;
      for (int64_t i = 0; i < n; ++i) column[i] = points[i * dim + axis];
      std::fill(column + n, column + stride, std::numeric_limits<T>::infinity());
    }
  }
};

// A cloud made ready: its tree (if one is used) and the order to take its queries in.
struct Ready {
  bool tree = false;
  Buffer<uint8_t> block;
  Index index{};
  const uint32_t* order = nullptr;
  Buffer<uint32_t> order_memory, near;

  void make_tree(const PointKernels& kernels, const float* points, int32_t dim, int64_t n,
                 const uint8_t* given, int32_t threads) {
    tree = true;
    if (!given) {
      block = Buffer<uint8_t>(index_bytes(n));
      index_build(kernels, points, dim, n, threads, block.data());
      given = block.data();
    }
    index = index_view(given, n);
  }

  void order_queries(const PointKernels& kernels, const float* query, const float* points,
                     int32_t dim, int64_t n, int32_t threads) {
    near = Buffer<uint32_t>(n);
    if (query == points && n == index.tree.n) {  // the cloud in itself
      order = index.tree.row;
      for (int64_t i = 0; i < n; ++i) near[i] = static_cast<uint32_t>(i);
      return;
    }
    Buffer<uint64_t> keys(n);
    order_memory = Buffer<uint32_t>(n);
    hilbert_order(kernels, query, dim, n, index.frame, threads, order_memory.data(), keys.data());
    order = order_memory.data();
    parallel_for(threads, chunk_count(n), [&](int64_t chunk) {
      const int64_t end = std::min(n, (chunk + 1) * kChunk);
      for (int64_t i = chunk * kChunk; i < end; ++i) near[i] = index_near(index, keys[i]);
    });
  }
};

bool wants_tree(const Cloud& cloud, int32_t dim, bool given) {
  if (dim > 3 || cloud.references() == 0 || cloud.references() >= kNoRow) return false;
  return given || (cloud.references() >= kTreePoints && cloud.queries() >= kTreeQueries);
}

std::vector<int64_t> index_offsets(const Cloud* clouds, int64_t count) {
  std::vector<int64_t> offsets(static_cast<size_t>(count) + 1, 0);
  for (int64_t c = 0; c < count; ++c)
    offsets[c + 1] = offsets[c] + index_bytes(clouds[c].references());
  return offsets;
}

void knn_f32(const float* query, int64_t queries, const float* reference, int32_t dim,
             const Cloud* clouds, int64_t count, const uint8_t* given, int64_t k, int32_t metric,
             int32_t threads, const PointKernels& kernels, float* distances, int64_t* indices) {
  const std::vector<int64_t> offsets = index_offsets(clouds, count);
  std::vector<Ready> ready(static_cast<size_t>(count));
  std::vector<OwnedColumns<float>> columns(static_cast<size_t>(count));
  each_cloud(threads, count, [&](int64_t c, int32_t inside) {
    const Cloud& cloud = clouds[c];
    if (cloud.queries() == 0) return;
    const float* points = reference + cloud.reference * dim;
    if (!wants_tree(cloud, dim, given)) return columns[c].make(points, dim, cloud.references());
    ready[c].make_tree(kernels, points, dim, cloud.references(),
                       given ? given + offsets[c] : nullptr, inside);
    ready[c].order_queries(kernels, query + cloud.query * dim, points, dim, cloud.queries(),
                           inside);
  });
  const std::vector<Item> items = split(clouds, count);
  parallel_for(threads, static_cast<int64_t>(items.size()), [&](int64_t i) {
    const Item& item = items[i];
    const Cloud& cloud = clouds[item.cloud];
    const Ready& r = ready[item.cloud];
    const float* q = query + cloud.query * dim;
    float* d = distances + cloud.query * k;
    int64_t* x = indices + cloud.query * k;
    const int64_t add = cloud.reference - cloud.base;
    if (r.tree) {
      Buffer<uint8_t> work(kernels.knn_work(k));
      kernels.knn({&r.index.tree, q, dim, r.order, r.near.data(), item.begin, item.end, k, metric,
                   d, x, add, work.data()});
    } else {
      Buffer<uint8_t> work(kernels.scan_work(k, cloud.references()));
      kernels.scan_f32({&columns[item.cloud].columns, q, item.begin, item.end, k, metric, d, x, add,
                        work.data()});
    }
  });
  pad_gaps(clouds, count, queries, k, std::numeric_limits<float>::infinity(), distances, indices);
}

void knn_f64(const double* query, int64_t queries, const double* reference, int32_t dim,
             const Cloud* clouds, int64_t count, int64_t k, int32_t metric, int32_t threads,
             const PointKernels& kernels, double* distances, int64_t* indices) {
  std::vector<OwnedColumns<double>> columns(static_cast<size_t>(count));
  each_cloud(threads, count, [&](int64_t c, int32_t) {
    columns[c].make(reference + clouds[c].reference * dim, dim, clouds[c].references());
  });
  const std::vector<Item> items = split(clouds, count);
  parallel_for(threads, static_cast<int64_t>(items.size()), [&](int64_t i) {
    const Item& item = items[i];
    const Cloud& cloud = clouds[item.cloud];
    Buffer<uint8_t> work(kernels.scan_work(k, cloud.references()));
    kernels.scan_f64({&columns[item.cloud].columns, query + cloud.query * dim, item.begin, item.end,
                      k, metric, distances + cloud.query * k, indices + cloud.query * k,
                      cloud.reference - cloud.base, work.data()});
  });
  pad_gaps(clouds, count, queries, k, std::numeric_limits<double>::infinity(), distances, indices);
}

// Row r of the reference is row r of the query where both lie in one tensor.
int64_t skip_of(const Cloud& cloud, bool skip_same) {
  return skip_same ? cloud.query - cloud.reference : INT64_MIN;
}

template <class T>
void ball_scans(const T* query, const T* reference, int32_t dim, const Cloud* clouds, int64_t count,
                T squared_radius, int64_t k, bool skip_same, int32_t threads,
                void (*run)(const BallScanJob<T>&), T* distances, int64_t* indices) {
  std::vector<OwnedColumns<T>> columns(static_cast<size_t>(count));
  each_cloud(threads, count, [&](int64_t c, int32_t) {
    columns[c].make(reference + clouds[c].reference * dim, dim, clouds[c].references());
  });
  const std::vector<Item> items = split(clouds, count);
  parallel_for(threads, static_cast<int64_t>(items.size()), [&](int64_t i) {
    const Item& item = items[i];
    const Cloud& cloud = clouds[item.cloud];
    run({&columns[item.cloud].columns, query + cloud.query * dim, item.begin, item.end, k,
         squared_radius, skip_of(cloud, skip_same), distances + cloud.query * k,
         indices + cloud.query * k, cloud.reference - cloud.base});
  });
}

void ball_f32(const float* query, const float* reference, int32_t dim, const Cloud* clouds,
              int64_t count, const uint8_t* given, float squared_radius, int64_t k, bool skip_same,
              int32_t threads, const PointKernels& kernels, float* distances, int64_t* indices) {
  const std::vector<int64_t> offsets = index_offsets(clouds, count);
  std::vector<Ready> ready(static_cast<size_t>(count));
  std::vector<OwnedColumns<float>> columns(static_cast<size_t>(count));
  each_cloud(threads, count, [&](int64_t c, int32_t inside) {
    const Cloud& cloud = clouds[c];
    if (cloud.queries() == 0) return;
    const float* points = reference + cloud.reference * dim;
    columns[c].make(points, dim, cloud.references());
    if (!wants_tree(cloud, dim, given)) return;
    ready[c].make_tree(kernels, points, dim, cloud.references(),
                       given ? given + offsets[c] : nullptr, inside);
    ready[c].order_queries(kernels, query + cloud.query * dim, points, dim, cloud.queries(),
                           inside);
  });
  const std::vector<Item> items = split(clouds, count);
  parallel_for(threads, static_cast<int64_t>(items.size()), [&](int64_t i) {
    const Item& item = items[i];
    const Cloud& cloud = clouds[item.cloud];
    const Ready& r = ready[item.cloud];
    Buffer<uint8_t> work(kernels.ball_work(k));
    kernels.ball({r.tree ? &r.index.tree : nullptr, &columns[item.cloud].columns,
                  query + cloud.query * dim, dim, r.order, item.begin, item.end, k, squared_radius,
                  skip_of(cloud, skip_same), distances + cloud.query * k, indices + cloud.query * k,
                  cloud.reference - cloud.base, work.data()});
  });
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int64_t s3d_index_bytes(const int64_t* clouds, int64_t count) {
  return index_offsets(reinterpret_cast<const Cloud*>(clouds), count).back();
}

S3D_API int32_t s3d_index_build(const float* reference, int32_t dim, const int64_t* table,
                                int64_t count, int32_t threads, int32_t path, uint8_t* block) {
  return guarded([&] {
    const PointKernels& kernels = point_kernels_of(path);
    const Cloud* clouds = reinterpret_cast<const Cloud*>(table);
    const std::vector<int64_t> offsets = index_offsets(clouds, count);
    each_cloud(threads, count, [&](int64_t c, int32_t inside) {
      index_build(kernels, reference + clouds[c].reference * dim, dim, clouds[c].references(),
                  inside, block + offsets[c]);
    });
  });
}

S3D_API int32_t s3d_knn(int32_t dtype, const void* query, int64_t queries, const void* reference,
                        int32_t dim, const int64_t* table, int64_t count, const uint8_t* index,
                        int64_t k, int32_t metric, int32_t threads, int32_t path, void* distances,
                        int64_t* indices) {
  return guarded([&] {
    const PointKernels& kernels = point_kernels_of(path);
    const Cloud* clouds = reinterpret_cast<const Cloud*>(table);
    if (k == 0) return;
    if (dtype == kFloat32) {
      knn_f32(static_cast<const float*>(query), queries, static_cast<const float*>(reference), dim,
              clouds, count, index, k, metric, threads, kernels, static_cast<float*>(distances),
              indices);
    } else if (dtype == kFloat64) {
      knn_f64(static_cast<const double*>(query), queries, static_cast<const double*>(reference),
              dim, clouds, count, k, metric, threads, kernels, static_cast<double*>(distances),
              indices);
    } else {
      throw BadArgument{};
    }
  });
}

S3D_API int32_t s3d_ball(int32_t dtype, const void* query, int64_t queries, const void* reference,
                         int32_t dim, const int64_t* table, int64_t count, const uint8_t* index,
                         double squared_radius, int64_t k, int32_t skip_same, int32_t threads,
                         int32_t path, void* distances, int64_t* indices) {
  return guarded([&] {
    const PointKernels& kernels = point_kernels_of(path);
    const Cloud* clouds = reinterpret_cast<const Cloud*>(table);
    if (k == 0) return;
    if (dtype == kFloat32) {
      const float* q = static_cast<const float*>(query);
      const float* r = static_cast<const float*>(reference);
      float* d = static_cast<float*>(distances);
      const float square = static_cast<float>(squared_radius);
      if (dim <= 3) {
        ball_f32(q, r, dim, clouds, count, index, square, k, skip_same != 0, threads, kernels, d,
                 indices);
      } else {
        ball_scans<float>(q, r, dim, clouds, count, square, k, skip_same != 0, threads,
                          kernels.ball_scan_f32, d, indices);
      }
      pad_gaps(clouds, count, queries, k, 0.0f, d, indices);
    } else if (dtype == kFloat64) {
      double* d = static_cast<double*>(distances);
      ball_scans<double>(static_cast<const double*>(query), static_cast<const double*>(reference),
                         dim, clouds, count, squared_radius, k, skip_same != 0, threads,
                         kernels.ball_scan_f64, d, indices);
      pad_gaps(clouds, count, queries, k, 0.0, d, indices);
    } else {
      throw BadArgument{};
    }
  });
}
