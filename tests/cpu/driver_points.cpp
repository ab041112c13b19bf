// The point kernels against plain loops, with no Python in the process: what the sanitizers and an
// emulator run.
//   driver_points [path number, 0 = the machine's own] [points]
// Every case runs on 1, 2, 3 and 8 threads and must give the bytes of the loops; then all of it at
// once from several threads.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "../../sparse3d/cpu/csrc/abi.h"
#include "../../sparse3d/cpu/csrc/common.h"

// Not in abi.h: the files of the point kernels define them where they stand.
S3D_API int64_t s3d_index_bytes(const int64_t*, int64_t);
S3D_API int32_t s3d_index_build(const float*, int32_t, const int64_t*, int64_t, int32_t, int32_t,
                                uint8_t*);
S3D_API int32_t s3d_knn(int32_t, const void*, int64_t, const void*, int32_t, const int64_t*,
                        int64_t, const uint8_t*, int64_t, int32_t, int32_t, int32_t, void*,
                        int64_t*);
S3D_API int32_t s3d_ball(int32_t, const void*, int64_t, const void*, int32_t, const int64_t*,
                         int64_t, const uint8_t*, double, int64_t, int32_t, int32_t, int32_t, void*,
                         int64_t*);
S3D_API int32_t s3d_fps(int32_t, const void*, int32_t, const int64_t*, int64_t, int32_t, int32_t,
                        int64_t, int32_t, int32_t, int64_t*);
S3D_API int32_t s3d_gather_columns(int32_t, const void*, const int64_t*, int64_t, int64_t, int64_t,
                                   int64_t, int32_t, void*);
S3D_API int32_t s3d_interpolate_columns(int32_t, const void*, const int64_t*, const void*, int64_t,
                                        int64_t, int64_t, int64_t, int32_t, void*);
S3D_API int32_t s3d_graclus(const int64_t*, const int64_t*, const double*, const int64_t*, int64_t,
                            int64_t*);
S3D_API int32_t s3d_random_walk(const int64_t*, const int64_t*, const int64_t*, const float*,
                                int64_t, int64_t, double, double, int64_t, int32_t, int64_t*,
                                int64_t*);

namespace {

using Longs = std::vector<int64_t>;

constexpr int32_t kThreads[] = {1, 2, 3, 8};
int32_t path_number = 0;

void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "driver_points: %s\n", what);
  std::exit(1);
}
void status(int32_t s, const char* what) { require(s == s3d::kOk, what); }

template <class T>
constexpr int32_t dtype_of() {
  return sizeof(T) == 4 ? s3d::kFloat32 : s3d::kFloat64;
}

// Points of a grid of 1/8 in [-4, 4): many equal distances and many coincident points.
template <class T>
std::vector<T> make_points(int64_t n, int32_t dim, std::mt19937& engine) {
  std::uniform_int_distribution<int> cell(-32, 31);
  std::uniform_real_distribution<float> free(-4, 4);
  std::vector<T> points(static_cast<size_t>(n * dim));
  for (size_t i = 0; i < points.size(); ++i)
    points[i] = i / static_cast<size_t>(dim) % 2 ? T(cell(engine)) / 8 : T(free(engine));
  return points;
}

template <class T>
T distance(const T* a, const T* b, int32_t dim, int32_t metric) {
  T sum = 0;
  for (int32_t axis = 0; axis < dim; ++axis) {
    const T d = a[axis] - b[axis];
    const T term = metric == 2 ? std::fabs(d) : d * d;
    sum = axis ? sum + term : term;
  }
  return sum;
}

// Two clouds of unequal size, a gap of queries between them, indices relative to each cloud.
struct Clouds {
  int64_t queries, references;
  Longs table;
};
Clouds split(int64_t queries, int64_t references) {
  const int64_t q = queries / 3, r = references * 2 / 3;
  return {
      queries, references, {0, q, 0, r, 0, std::min(q + 2, queries), queries, r, references, r}};
}

template <class T>
void search_case(int64_t m, int64_t n, int32_t dim, int64_t k, std::mt19937& engine) {
  const auto query = make_points<T>(m, dim, engine), reference = make_points<T>(n, dim, engine);
  const Clouds clouds = split(m, n);
  const auto places = static_cast<size_t>(m * k);
  const bool indexable = sizeof(T) == 4 && dim <= 3;
  for (int32_t metric = 0; metric < 4; ++metric) {  // 3: a ball
    const T square = T(1.5);
    Longs expected(places, -1);
    std::vector<T> expected_distance(places,
                                     metric == 3 ? T(0) : std::numeric_limits<T>::infinity());
    for (int c = 0; c < 2; ++c) {
      const int64_t* row = clouds.table.data() + 5 * c;
      for (int64_t q = row[0]; q < row[1]; ++q) {
        std::vector<std::pair<T, int64_t>> found;
        for (int64_t r = row[2]; r < row[3]; ++r) {
          const T d = distance(&query[static_cast<size_t>(q * dim)],
                               &reference[static_cast<size_t>(r * dim)], dim, metric);
          if (metric < 3 || d < square) found.emplace_back(d, r - row[4]);
        }
        if (metric < 3) std::stable_sort(found.begin(), found.end());
        for (int64_t i = 0; i < std::min<int64_t>(k, static_cast<int64_t>(found.size())); ++i) {
          const auto at = static_cast<size_t>(q * k + i);
          expected[at] = found[static_cast<size_t>(i)].second;
          const T d = found[static_cast<size_t>(i)].first;
          expected_distance[at] = metric == 1 ? T(std::sqrt(double(d))) : d;
        }
      }
    }
    for (const int32_t threads : kThreads)
      for (const bool with_index : {false, true}) {
        if (with_index && !indexable) continue;
        std::vector<uint8_t> block;
        if (with_index) {
          block.resize(static_cast<size_t>(s3d_index_bytes(clouds.table.data(), 2)));
          status(s3d_index_build(reinterpret_cast<const float*>(reference.data()), dim,
                                 clouds.table.data(), 2, threads, path_number, block.data()),
                 "index");
        }
        Longs indices(places, -7);
        std::vector<T> distances(places, T(-7));
        const uint8_t* given = with_index ? block.data() : nullptr;
        if (metric < 3)
          status(
              s3d_knn(dtype_of<T>(), query.data(), m, reference.data(), dim, clouds.table.data(), 2,
                      given, k, metric, threads, path_number, distances.data(), indices.data()),
              "knn");
        else
          status(s3d_ball(dtype_of<T>(), query.data(), m, reference.data(), dim,
                          clouds.table.data(), 2, given, double(square), k, 0, threads, path_number,
                          distances.data(), indices.data()),
                 "ball");
        require(indices == expected, metric < 3 ? "neighbours" : "ball members");
        require(distances == expected_distance, "distances");
      }
  }
}

template <class T>
void sampling_case(int64_t n, int32_t dim, std::mt19937& engine) {
  const auto points = make_points<T>(n, dim, engine);
  const int64_t half = n / 2, count = std::min<int64_t>(half, 40);
  if (half == 0) return;
  const Longs table{0, half, 0, count, half / 2, 0, half, n, count, 2 * count, n - 1, half};
  Longs expected;
  for (int c = 0; c < 2; ++c) {
    const int64_t* row = table.data() + 6 * c;
    const auto size = static_cast<size_t>(row[1] - row[0]);
    std::vector<T> best(size, std::numeric_limits<T>::infinity());
    int64_t at = row[4];
    for (int64_t i = 0; i < count; ++i) {
      expected.push_back(at - row[5]);
      best[static_cast<size_t>(at - row[0])] = -1;
      for (size_t j = 0; j < size; ++j) {
        const T* other = &points[(static_cast<size_t>(row[0]) + j) * static_cast<size_t>(dim)];
        best[j] =
            std::min(best[j], distance(other, &points[static_cast<size_t>(at * dim)], dim, 0));
      }
      at = row[0] + (std::max_element(best.begin(), best.end()) - best.begin());
    }
  }
  for (const int32_t threads : kThreads) {
    Longs taken(static_cast<size_t>(2 * count), -7);
    status(s3d_fps(dtype_of<T>(), points.data(), dim, table.data(), 2, 0, 0, 0, threads,
                   path_number, taken.data()),
           "fps");
    require(taken == expected, "farthest points");
  }
}

void rows_case(int64_t places, std::mt19937& engine) {
  const int64_t batch = 2, channels = 5, columns = 37;
  const auto features = make_points<float>(batch * channels * columns, 1, engine);
  const auto weight = make_points<float>(batch * places * 3, 1, engine);
  Longs index(static_cast<size_t>(batch * places * 3));
  for (int64_t& i : index) i = std::uniform_int_distribution<int64_t>(0, columns - 1)(engine);
  for (const int32_t threads : kThreads) {
    std::vector<float> gathered(static_cast<size_t>(batch * channels * places * 3)),
        mixed(static_cast<size_t>(batch * channels * places));
    status(s3d_gather_columns(4, features.data(), index.data(), batch, channels, columns,
                              places * 3, threads, gathered.data()),
           "gather");
    status(s3d_interpolate_columns(s3d::kFloat32, features.data(), index.data(), weight.data(),
                                   batch, channels, columns, places, threads, mixed.data()),
           "interpolate");
    for (int64_t line = 0; line < batch * channels; ++line)
      for (int64_t i = 0; i < places; ++i) {
        float term[3];
        for (int64_t j = 0; j < 3; ++j) {
          const auto at = static_cast<size_t>(line / channels * places * 3 + 3 * i + j);
          const float f = features[static_cast<size_t>(line * columns + index[at])];
          require(gathered[static_cast<size_t>((line * places + i) * 3 + j)] == f, "gather");
          term[j] = f * weight[at];
        }
        require(mixed[static_cast<size_t>(line * places + i)] == term[0] + term[1] + term[2],
                "interpolate");
      }
  }
}

// A ring with chords: matches are edges, walks follow edges.
void graph_case(int64_t nodes, std::mt19937& engine) {
  Longs rowptr{0}, col, order;
  std::vector<double> weight;
  for (int64_t i = 0; i < nodes; ++i) {
    for (const int64_t step : {int64_t(1), nodes - 1, nodes / 2}) {
      col.push_back((i + step) % nodes);
      weight.push_back(double(engine() % 8));
    }
    rowptr.push_back(static_cast<int64_t>(col.size()));
    order.push_back(i);
  }
  const auto edge = [&](int64_t from, int64_t to) {
    return std::find(col.begin() + rowptr[static_cast<size_t>(from)],
                     col.begin() + rowptr[static_cast<size_t>(from) + 1],
                     to) != col.begin() + rowptr[static_cast<size_t>(from) + 1];
  };
  std::shuffle(order.begin(), order.end(), engine);
  Longs mate(static_cast<size_t>(nodes));
  for (const bool weighted : {false, true}) {
    status(s3d_graclus(rowptr.data(), col.data(), weighted ? weight.data() : nullptr, order.data(),
                       nodes, mate.data()),
           "graclus");
    for (int64_t i = 0; i < nodes; ++i) {
      const int64_t low = mate[static_cast<size_t>(i)];
      require(low >= 0 && low <= i && (low == i || edge(low, i) || edge(i, low)), "matching");
    }
  }
  const int64_t length = 7;
  Longs first;
  for (const int32_t threads : kThreads) {
    Longs walked(static_cast<size_t>(nodes * (length + 1))),
        edges(static_cast<size_t>(nodes * length));
    status(s3d_random_walk(rowptr.data(), col.data(), order.data(), nullptr, nodes, length, 0.5, 2,
                           9, threads, walked.data(), edges.data()),
           "walk");
    for (int64_t i = 0; i < nodes; ++i)
      for (int64_t s = 0; s < length; ++s) {
        const auto at = static_cast<size_t>(i * (length + 1) + s);
        require(edge(walked[at], walked[at + 1]), "a walk leaves the graph");
      }
    require(first.empty() || first == walked, "walks differ between thread counts");
    first = std::move(walked);
  }
}

template <class T>
void run_type(int64_t most, std::mt19937& engine) {
  for (int32_t dim = 1; dim <= 4; ++dim)
    for (const int64_t n : {int64_t(0), int64_t(1), int64_t(33), most}) {
      for (const int64_t k : {1, 8, 40}) search_case<T>(n / 3 + 5, n, dim, k, engine);
      sampling_case<T>(n, dim, engine);
    }
}

void run_all(int64_t most, uint32_t seed) {
  std::mt19937 engine(seed);
  run_type<float>(most, engine);
  run_type<double>(most / 4, engine);
  for (const int64_t n : {1, 33, 200}) rows_case(n, engine);
  for (const int64_t n : {4, 33, 200}) graph_case(n, engine);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) path_number = std::atoi(argv[1]);
  const int64_t points = argc > 2 ? std::atoll(argv[2]) : 2400;
  if (!(s3d_paths() >> (path_number ? path_number : s3d_default_path()) & 1)) {
    std::printf("points, path %d is not here: skipped\n", path_number);
    return 0;
  }
  run_all(points, 1);
  std::vector<std::thread> users;
  for (uint32_t i = 0; i < 3; ++i) users.emplace_back([=] { run_all(points / 4 + i, 2 + i); });
  for (std::thread& u : users) u.join();
  std::printf("points, path %d: all equal\n", path_number ? path_number : s3d_default_path());
  return 0;
}
