// The C ABI against plain loops, with no Python in the process: what the sanitizers and an emulator
// run.
//   driver [path number, 0 = the machine's own] [rows] [no-fork]
// Every case runs on 1, 2, 3 and 8 threads and must give the same bytes; then all of it at once
// from several threads, and in a forked child after the parent used the pool.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "../../sparse3d/cpu/csrc/abi.h"
#include "../../sparse3d/cpu/csrc/half.h"

namespace {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;
using Site = std::vector<int32_t>;

int32_t path_number = 0;

void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "driver: %s\n", what);
  std::exit(1);
}
void status(int32_t s, const char* what) { require(s == s3d::kOk, what); }

struct Random {
  std::mt19937 engine;
  explicit Random(uint32_t seed) : engine(seed) {}
  int32_t between(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(engine);
  }
  double normal() { return std::normal_distribution<double>()(engine); }
};

Site row_of(const Ints& coords, int64_t i, int width) {
  return Site(coords.begin() + i * width, coords.begin() + (i + 1) * width);
}

Ints make_scene(int64_t rows, int ndim, bool distinct, Random& random) {
  Ints coords;
  std::set<Site> seen;
  for (int64_t i = 0; i < rows; ++i) {
    Site site{random.between(0, 1)};
    for (int a = 0; a < ndim; ++a) site.push_back(random.between(-6, 6));
    if (distinct && !seen.insert(site).second) continue;
    coords.insert(coords.end(), site.begin(), site.end());
  }
  return coords;
}

struct Layer {
  Longs kernel, stride, padding, dilation;
  int64_t taps() const {
    int64_t n = 1;
    for (const int64_t k : kernel) n *= k;
    return n;
  }
  // t * dilation - padding along an axis.
  int64_t offset(int64_t tap, size_t axis) const {
    for (size_t a = kernel.size() - 1; a > axis; --a) tap /= kernel[a];
    return tap % kernel[axis] * dilation[axis] - padding[axis];
  }
};

struct Map {
  Ints out, src, dst;
  Longs splits;
  bool operator==(const Map& o) const {
    return out == o.out && src == o.src && dst == o.dst && splits == o.splits;
  }
};

Map take(int32_t threads, void* handle, int64_t taps, int width) {
  int64_t pairs, rows;
  s3d_map_sizes(handle, &pairs, &rows);
  Map m;
  m.out.resize(static_cast<size_t>(rows * width));
  m.src.resize(static_cast<size_t>(pairs));
  m.dst.resize(static_cast<size_t>(pairs));
  m.splits.resize(static_cast<size_t>(taps + 1));
  status(s3d_map_take(threads, handle, width ? m.out.data() : nullptr, m.src.data(), m.dst.data(),
                      m.splits.data()),
         "map_take");
  return m;
}

// ---- the oracle: plain loops over the definition ----

Map given_by_loops(const Ints& coords, const Ints& out, int width, const Layer& layer) {
  std::map<Site, int32_t> lowest;
  for (int64_t i = 0; i * width < static_cast<int64_t>(coords.size()); ++i)
    lowest.emplace(row_of(coords, i, width), static_cast<int32_t>(i));
  Map m;
  m.splits.push_back(0);
  for (int64_t t = 0; t < layer.taps(); ++t) {
    for (int64_t q = 0; q * width < static_cast<int64_t>(out.size()); ++q) {
      Site p = row_of(out, q, width);
      for (size_t a = 0; a + 1 < p.size(); ++a)
        p[a + 1] = static_cast<int32_t>(p[a + 1] * layer.stride[a] + layer.offset(t, a));
      const auto found = lowest.find(p);
      if (found == lowest.end()) continue;
      m.src.push_back(found->second);
      m.dst.push_back(static_cast<int32_t>(q));
    }
    m.splits.push_back(static_cast<int64_t>(m.src.size()));
  }
  return m;
}

// Distinct sites by batch, then first occurrence.
Ints created_by_loops(const std::vector<Site>& sites) {
  std::set<Site> seen;
  std::map<int32_t, std::vector<Site>> batches;
  for (const Site& s : sites)
    if (seen.insert(s).second) batches[s[0]].push_back(s);
  Ints out;
  for (const auto& [batch, list] : batches)
    for (const Site& s : list) out.insert(out.end(), s.begin(), s.end());
  return out;
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

Map footprint_by_loops(const Ints& coords, int width, const Layer& layer, bool transposed) {
  std::vector<Site> reached;
  std::vector<std::vector<std::pair<int32_t, Site>>> by_tap(static_cast<size_t>(layer.taps()));
  for (int64_t i = 0; i * width < static_cast<int64_t>(coords.size()); ++i)
    for (int64_t t = 0; t < layer.taps(); ++t) {
      Site q = row_of(coords, i, width);
      bool legal = true;
      for (size_t a = 0; a + 1 < q.size(); ++a) {
        const int64_t p = q[a + 1];
        if (transposed) {
          q[a + 1] = static_cast<int32_t>(p * layer.stride[a] + layer.offset(t, a));
        } else {
          const int64_t v = p - layer.offset(t, a);
          legal = legal && v % layer.stride[a] == 0;
          q[a + 1] = static_cast<int32_t>(floor_div(v, layer.stride[a]));
        }
      }
      if (!legal) continue;
      reached.push_back(q);
      by_tap[static_cast<size_t>(t)].emplace_back(static_cast<int32_t>(i), q);
    }
  Map m;
  m.out = created_by_loops(reached);
  std::map<Site, int32_t> number;
  for (int64_t q = 0; q * width < static_cast<int64_t>(m.out.size()); ++q)
    number.emplace(row_of(m.out, q, width), static_cast<int32_t>(q));
  m.splits.push_back(0);
  for (const auto& list : by_tap) {
    std::vector<std::pair<int32_t, int32_t>> pairs;  // dst, src
    for (const auto& [row, site] : list) pairs.emplace_back(number.at(site), row);
    std::sort(pairs.begin(), pairs.end());
    for (const auto& [dst, src] : pairs) {
      m.dst.push_back(dst);
      m.src.push_back(src);
    }
    m.splits.push_back(static_cast<int64_t>(m.src.size()));
  }
  return m;
}

// ---- maps ----

// One run of every map on a number of threads, compared with the loops.
std::vector<Map> maps_on(int32_t threads, const Ints& coords, int ndim, const Layer& layer,
                         bool odd) {
  const int width = ndim + 1;
  const auto n = static_cast<int64_t>(coords.size()) / width;
  Ints table(static_cast<size_t>(s3d_table_words(n)));
  status(s3d_coordinate_table(threads, coords.data(), n, ndim, table.data()), "table");
  Ints own(static_cast<size_t>(n));
  status(s3d_coordinate_lookup(threads, coords.data(), n, ndim, table.data(), coords.data(), n,
                               own.data()),
         "lookup");
  std::map<Site, int32_t> lowest;
  for (int64_t i = 0; i < n; ++i)
    require(own[static_cast<size_t>(i)] ==
                lowest.emplace(row_of(coords, i, width), static_cast<int32_t>(i)).first->second,
            "look-up is not the lowest row");
  std::vector<Map> found;
  const int64_t taps = layer.taps();
  void* handle;
  if (odd) {
    Layer centred = layer;
    for (size_t a = 0; a < centred.kernel.size(); ++a) {
      centred.stride[a] = 1;
      centred.padding[a] = centred.dilation[a] * (centred.kernel[a] / 2);
    }
    status(s3d_map_submanifold(threads, path_number, coords.data(), n, ndim, table.data(),
                               layer.kernel.data(), layer.dilation.data(), &handle),
           "submanifold");
    found.push_back(take(threads, handle, taps, 0));
    require(found.back() == given_by_loops(coords, coords, width, centred), "submanifold map");
  }
  const auto lists = [&](auto f) {
    return f(layer.kernel.data(), layer.stride.data(), layer.padding.data(), layer.dilation.data());
  };
  for (const bool transposed : {false, true}) {
    status(lists([&](auto... l) {
             return s3d_map_footprint(threads, path_number, coords.data(), n, ndim, l..., nullptr,
                                      transposed, &handle);
           }),
           "footprint");
    found.push_back(take(threads, handle, taps, width));
    require(found.back() == footprint_by_loops(coords, width, layer, transposed), "footprint map");
  }
  status(lists([&](auto... l) {
           return s3d_map_floor(threads, path_number, coords.data(), n, ndim, table.data(), l...,
                                &handle);
         }),
         "floor");
  found.push_back(take(threads, handle, taps, width));
  std::vector<Site> cells;
  for (int64_t i = 0; i < n; ++i) {
    Site s = row_of(coords, i, width);
    for (size_t a = 0; a + 1 < s.size(); ++a)
      s[a + 1] = static_cast<int32_t>(floor_div(s[a + 1], layer.stride[a]));
    cells.push_back(s);
  }
  Map wanted = given_by_loops(coords, created_by_loops(cells), width, layer);
  wanted.out = created_by_loops(cells);
  require(found.back() == wanted, "floor map");
  return found;
}

// ---- convolution ----

double value_of(const std::vector<uint8_t>& bytes, int32_t dtype, int64_t i) {
  const auto at = static_cast<size_t>(i);
  if (dtype == s3d::kFloat64) return reinterpret_cast<const double*>(bytes.data())[at];
  if (dtype == s3d::kFloat32) return double(reinterpret_cast<const float*>(bytes.data())[at]);
  const uint16_t bits = reinterpret_cast<const uint16_t*>(bytes.data())[at];
  return dtype == s3d::kBFloat16 ? double(s3d::widen(s3d::BFloat16{bits}))
                                 : double(s3d::widen(s3d::Float16{bits}));
}

std::vector<uint8_t> random_values(int64_t n, int32_t dtype, double scale, Random& random) {
  std::vector<uint8_t> bytes(static_cast<size_t>(n * s3d::element_size(dtype)));
  for (int64_t i = 0; i < n; ++i) {
    const double v = random.normal() * scale;
    const auto at = static_cast<size_t>(i);
    if (dtype == s3d::kFloat64) reinterpret_cast<double*>(bytes.data())[at] = v;
    if (dtype == s3d::kFloat32) reinterpret_cast<float*>(bytes.data())[at] = float(v);
    if (dtype == s3d::kBFloat16)
      reinterpret_cast<uint16_t*>(bytes.data())[at] =
          s3d::Narrow<s3d::BFloat16>::from(float(v)).bits;
    if (dtype == s3d::kFloat16)
      reinterpret_cast<uint16_t*>(bytes.data())[at] =
          s3d::Narrow<s3d::Float16>::from(float(v)).bits;
  }
  return bytes;
}

void close(const std::vector<uint8_t>& got, int32_t dtype, const std::vector<double>& wanted,
           const char* what) {
  double largest = 1e-30;
  for (const double v : wanted) largest = std::max(largest, std::fabs(v));
  const double sums = dtype == s3d::kFloat64 ? 1e-14 : 2e-6;
  const double unit = dtype == s3d::kBFloat16 ? 0x1p-8 : dtype == s3d::kFloat16 ? 0x1p-11 : 0;
  for (size_t i = 0; i < wanted.size(); ++i)
    require(std::fabs(value_of(got, dtype, static_cast<int64_t>(i)) - wanted[i]) <=
                unit * std::fabs(wanted[i]) + sums * largest + (unit > 0 ? 6e-8 : 0),
            what);
}

struct ConvCase {
  int64_t channels_in, channels_out, groups;  // of all groups together
  int32_t dtype, activation;
  bool swapped;  // over the transposed map
};

std::vector<uint8_t> conv_on(int32_t threads, const Map& m, int64_t rows_in, int64_t rows_out,
                             const ConvCase& k, bool check) {
  Random random(7);
  const auto taps = static_cast<int64_t>(m.splits.size()) - 1;
  const int64_t ci = k.channels_in / k.groups, co = k.channels_out / k.groups;
  const auto x = random_values(rows_in * k.channels_in, k.dtype, 1, random);
  const auto w = random_values(k.channels_out * taps * ci, k.dtype, 0.125, random);
  const auto g = random_values(rows_out * k.channels_out, k.dtype, 1, random);
  const int32_t sums = k.dtype == s3d::kFloat64 ? s3d::kFloat64 : s3d::kFloat32;
  const auto bias = random_values(k.channels_out, sums, 1, random),
             scale = random_values(k.channels_out, sums, 1, random);
  std::vector<uint8_t> y(
      static_cast<size_t>(rows_out * k.channels_out * s3d::element_size(k.dtype)));
  std::vector<uint8_t> dw(w.size());
  int64_t header[2];
  status(s3d_pairs_inspect(threads, m.src.data(), m.dst.data(), m.splits.data(), taps, rows_in,
                           rows_out, 0, header),
         "inspect");
  Ints src = m.src, dst = m.dst;
  if (!(header[0] & s3d::kSorted)) {
    status(s3d_pairs_sort(threads, m.src.data(), m.dst.data(), m.splits.data(), taps, rows_out,
                          src.data(), dst.data()),
           "sort");
    header[0] |= s3d::kSorted;
  }
  s3d::ConvCall c{};
  c.threads = threads;
  c.path = path_number;
  c.dtype = k.dtype;
  c.activation = k.activation;
  c.x = x.data();
  c.w = w.data();
  c.scale = scale.data();
  c.bias = bias.data();
  c.residual = g.data();
  c.y = y.data();
  c.in = src.data();
  c.out = dst.data();
  c.splits = m.splits.data();
  c.ldx = k.channels_in;
  c.ldy = c.ldr = k.channels_out;
  c.w_group = co * taps * ci;
  c.w_tap = ci;
  c.w_in = 1;
  c.w_out = taps * ci;
  c.channels_in = ci;
  c.channels_out = co;
  c.groups = k.groups;
  c.taps = taps;
  c.num_out = rows_out;
  c.flags = header[0];
  c.identity = header[1];
  c.alpha = 0.25;
  status(s3d_conv(&c), "conv");
  s3d::WeightGradCall b{};
  b.threads = threads;
  b.path = path_number;
  b.dtype = k.dtype;
  b.x = x.data();
  b.g = g.data();
  b.dw = dw.data();
  b.in = m.src.data();
  b.out = m.dst.data();
  b.splits = m.splits.data();
  b.ldx = k.channels_in;
  b.ldg = k.channels_out;
  b.channels_in = ci;
  b.channels_out = co;
  b.groups = k.groups;
  b.taps = taps;
  status(s3d_conv_weight_grad(&b), "weight gradient");
  std::vector<uint8_t> tiled(w.size());
  b.dw = tiled.data();
  b.in = src.data();
  b.out = b.sorted = dst.data();
  b.sorted_rows = rows_out;
  status(s3d_conv_weight_grad(&b), "weight gradient by tiles");
  if (check) {
    std::vector<double> sum(static_cast<size_t>(rows_out * k.channels_out));
    std::vector<double> dsum(static_cast<size_t>(k.channels_out * taps * ci));
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t p = m.splits[static_cast<size_t>(t)]; p < m.splits[static_cast<size_t>(t + 1)];
           ++p) {
        const int64_t from = m.src[static_cast<size_t>(p)], to = m.dst[static_cast<size_t>(p)];
        for (int64_t o = 0; o < k.channels_out; ++o)
          for (int64_t i = 0; i < ci; ++i) {
            const double xv = value_of(x, k.dtype, from * k.channels_in + o / co * ci + i);
            const int64_t at = (o * taps + t) * ci + i;
            sum[static_cast<size_t>(to * k.channels_out + o)] += xv * value_of(w, k.dtype, at);
            dsum[static_cast<size_t>(at)] += xv * value_of(g, k.dtype, to * k.channels_out + o);
          }
      }
    for (int64_t i = 0; i < rows_out * k.channels_out; ++i) {
      double& v = sum[static_cast<size_t>(i)];
      v = v * value_of(scale, sums, i % k.channels_out) + value_of(bias, sums, i % k.channels_out) +
          value_of(g, k.dtype, i);
      if (k.activation == s3d::kRelu) v = std::max(v, 0.0);
      if (k.activation == s3d::kLeakyRelu && v < 0) v *= 0.25;
      if (k.activation == s3d::kSigmoid) v = 1 / (1 + std::exp(-v));
    }
    close(y, k.dtype, sum, "convolution");
    close(dw, k.dtype, dsum, "weight gradient");
    close(tiled, k.dtype, dsum, "weight gradient by tiles");
  }
  y.insert(y.end(), dw.begin(), dw.end());
  y.insert(y.end(), tiled.begin(), tiled.end());
  return y;
}

// ---- the rows: pools, segments, interpolation, dense ----

std::vector<uint8_t> rows_on(int32_t threads, const Map& m, const Ints& coords, int ndim,
                             int32_t dtype) {
  Random random(11);
  const int64_t channels = 5, n = static_cast<int64_t>(coords.size()) / (ndim + 1);
  const auto taps = static_cast<int64_t>(m.splits.size()) - 1;
  const int64_t rows_out = static_cast<int64_t>(m.out.size()) / (ndim + 1);
  const auto size = static_cast<size_t>(s3d::element_size(dtype));
  const auto x = random_values(n * channels, dtype, 2, random);
  std::vector<uint8_t> all;
  const auto keep = [&](const void* data, size_t bytes) {
    const auto* b = static_cast<const uint8_t*>(data);
    all.insert(all.end(), b, b + bytes);
  };
  std::vector<uint8_t> y(static_cast<size_t>(rows_out * channels) * size), dx(x.size());
  Ints arg(static_cast<size_t>(rows_out * channels));
  const auto pairs = [&](auto f, auto... rest) {
    return f(threads, dtype, x.data(), channels, m.src.data(), m.dst.data(), m.splits.data(), taps,
             rows_out, rest...);
  };
  status(pairs(s3d_pool_sum, static_cast<void*>(y.data())), "pool_sum");
  std::vector<double> sum(static_cast<size_t>(rows_out * channels));
  for (size_t p = 0; p < m.src.size(); ++p)
    for (int64_t c = 0; c < channels; ++c)
      sum[static_cast<size_t>(m.dst[p] * channels + c)] +=
          value_of(x, dtype, m.src[p] * channels + c);
  close(y, dtype, sum, "pool_sum");
  keep(y.data(), y.size());
  status(pairs(s3d_pool_max, static_cast<void*>(y.data()), arg.data()), "pool_max");
  for (int64_t i = 0; i < rows_out * channels; ++i)
    require(value_of(y, dtype, i) ==
                value_of(x, dtype, arg[static_cast<size_t>(i)] * channels + i % channels),
            "pool_max");
  keep(y.data(), y.size());
  status(s3d_pool_max_grad(threads, dtype, y.data(), arg.data(), rows_out, channels, n, dx.data()),
         "pool_max_grad");
  keep(dx.data(), dx.size());

  Longs ids, owners(static_cast<size_t>(3 * channels));
  for (int64_t i = 0; i < n; ++i) ids.push_back(i % 7 == 0 ? 2 : 0);
  std::vector<uint8_t> s(static_cast<size_t>(3 * channels) * size);
  status(s3d_segment_sum(threads, dtype, x.data(), channels, ids.data(), n, 3, s.data()),
         "segment");
  std::vector<double> by_id(static_cast<size_t>(3 * channels));
  for (int64_t i = 0; i < n * channels; ++i)
    by_id[static_cast<size_t>(ids[static_cast<size_t>(i / channels)] * channels + i % channels)] +=
        value_of(x, dtype, i);
  close(s, dtype, by_id, "segment_sum");
  keep(s.data(), s.size());
  status(s3d_segment_max(threads, dtype, x.data(), channels, ids.data(), n, 3, s.data(),
                         owners.data()),
         "segment_max");
  keep(owners.data(), owners.size() * 8);

  const int64_t corners = int64_t(1) << ndim;
  std::vector<float> points;
  for (int64_t i = 0; i < n; ++i) {
    points.push_back(float(coords[static_cast<size_t>(i * (ndim + 1))]));
    for (int a = 0; a < ndim; ++a)
      points.push_back(float(coords[static_cast<size_t>(i * (ndim + 1) + a + 1)]) + 0.25f);
  }
  Ints table(static_cast<size_t>(s3d_table_words(n))), rows(static_cast<size_t>(n * corners));
  std::vector<float> weights(static_cast<size_t>(n * corners));
  status(s3d_coordinate_table(threads, coords.data(), n, ndim, table.data()), "table");
  status(s3d_trilinear_map(threads, s3d::kFloat32, coords.data(), n, ndim, table.data(),
                           points.data(), n, rows.data(), weights.data()),
         "trilinear_map");
  for (int64_t i = 0; i < n; ++i) {
    float total = 0;
    for (int64_t j = 0; j < corners; ++j) total += weights[static_cast<size_t>(i * corners + j)];
    require(std::fabs(total - 1) < 1e-5f, "corner weights");
    require(rows[static_cast<size_t>(i * corners)] >= 0, "a point's own voxel");
  }
  status(s3d_interpolate(threads, dtype, s3d::kFloat32, x.data(), channels, rows.data(),
                         weights.data(), n, corners, dx.data()),
         "interpolate");
  keep(dx.data(), dx.size());
  status(s3d_interpolate_grad(threads, dtype, s3d::kFloat32, x.data(), channels, rows.data(),
                              weights.data(), n, corners, n, dx.data()),
         "interpolate_grad");
  keep(dx.data(), dx.size());

  Ints moved = coords;
  for (size_t i = 0; i < moved.size(); ++i)
    if (i % static_cast<size_t>(ndim + 1)) moved[i] += 6;
  const Longs shape(static_cast<size_t>(ndim), 13);
  int64_t cells = 2;
  for (int a = 0; a < ndim; ++a) cells *= 13;
  std::vector<uint8_t> dense(static_cast<size_t>(cells * channels) * size), back(x.size());
  const int64_t bytes = channels * static_cast<int64_t>(size);
  status(s3d_dense_scatter(threads, x.data(), bytes, moved.data(), n, ndim, 2, shape.data(),
                           dense.data()),
         "dense_scatter");
  status(s3d_dense_gather(threads, dense.data(), bytes, moved.data(), n, ndim, 2, shape.data(),
                          back.data()),
         "dense_gather");
  std::map<Site, int64_t> lowest;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t owner = lowest.emplace(row_of(coords, i, ndim + 1), i).first->second;
    for (int64_t c = 0; c < channels; ++c)
      require(value_of(back, dtype, i * channels + c) == value_of(x, dtype, owner * channels + c),
              "dense");
  }
  return all;
}

// Everything, on one set of thread counts.
void run_all(int64_t most, const std::vector<int32_t>& counts) {
  Random random(static_cast<uint32_t>(most));
  for (int ndim = 1; ndim <= 4; ++ndim)
    for (const int64_t rows : {int64_t(0), int64_t(1), int64_t(33), most})
      for (const bool distinct : {true, false}) {
        const Ints coords = make_scene(rows, ndim, distinct, random);
        const int64_t n = static_cast<int64_t>(coords.size()) / (ndim + 1);
        for (const int64_t size : {3, 2}) {
          const auto axes = static_cast<size_t>(ndim);
          const Layer layer{Longs(axes, size), Longs(axes, 2),
                            Longs(axes, size / 2 % 2 * (size - 2)), Longs(axes, 1)};
          std::vector<Map> maps;
          for (const int32_t threads : counts) {
            auto found = maps_on(threads, coords, ndim, layer, size == 3);
            require(maps.empty() || found == maps, "maps differ between thread counts");
            maps = std::move(found);
          }
          if (rows == 33 && distinct) continue;
          const Map& strided = maps[maps.size() - 3];
          const int64_t coarse = static_cast<int64_t>(strided.out.size()) / (ndim + 1);
          for (int32_t dtype = 0; dtype < 4; ++dtype) {
            if (ndim == 4 && dtype % 2) continue;
            std::vector<uint8_t> first, other, third;
            for (const int32_t threads : counts) {
              const bool check = threads == counts[0];
              const ConvCase k = ndim == 1   ? ConvCase{4, 8, 4, dtype, s3d::kSigmoid, false}
                                 : ndim == 2 ? ConvCase{6, 6, 6, dtype, s3d::kLeakyRelu, false}
                                 : ndim == 3 ? ConvCase{33, 41, 1, dtype, s3d::kRelu, false}
                                             : ConvCase{3, 5, 1, dtype, s3d::kNone, false};
              auto a = conv_on(threads, strided, n, coarse, k, check);
              require(first.empty() || a == first, "convolutions differ between thread counts");
              first = std::move(a);
              const Map up{{}, strided.dst, strided.src, strided.splits};
              a = conv_on(threads, size == 3 ? maps[0] : up, size == 3 ? n : coarse, n, k, check);
              require(other.empty() || a == other, "convolutions differ between thread counts");
              other = std::move(a);
              a = rows_on(threads, strided, coords, ndim, dtype);
              require(third.empty() || a == third, "rows differ between thread counts");
              third = std::move(a);
            }
          }
        }
      }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) path_number = std::atoi(argv[1]);
  const int64_t rows = argc > 2 ? std::atoll(argv[2]) : 400;
  require(s3d_abi_version() == s3d::kAbiVersion, "version");
  if (!(s3d_paths() >> (path_number ? path_number : s3d_default_path()) & 1)) {
    std::printf("path %d is not here: skipped\n", path_number);
    return 0;
  }
  run_all(rows, {1, 2, 3, 8});
  std::vector<std::thread> users;
  for (int i = 0; i < 3; ++i) users.emplace_back([&, i] { run_all(rows / 4 + i, {2, 4}); });
  for (std::thread& u : users) u.join();
  if (argc <= 3) {
    const pid_t child = fork();
    if (child == 0) {
      run_all(rows / 4, {4});
      _exit(0);
    }
    int how = 0;
    require(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0,
            "forked child");
  }
  std::printf("path %d: all equal\n", path_number ? path_number : s3d_default_path());
  return 0;
}
