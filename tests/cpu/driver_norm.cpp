// Batch norm in training over the C ABI against plain loops in double: what the sanitizers and an
// emulator run.   driver_norm [path [most rows]]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "../../sparse3d/cpu/csrc/abi.h"
#include "../../sparse3d/cpu/csrc/half.h"

namespace {

using Bytes = std::vector<uint8_t>;
using Doubles = std::vector<double>;

void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "driver_norm: %s\n", what);
  std::exit(1);
}

// Rounds to a type, there and back.
double rounded(double v, int32_t dtype) {
  if (dtype == s3d::kFloat64) return v;
  const auto f = static_cast<float>(v);
  if (dtype == s3d::kBFloat16) return double(s3d::widen(s3d::Narrow<s3d::BFloat16>::from(f)));
  if (dtype == s3d::kFloat16) return double(s3d::widen(s3d::Narrow<s3d::Float16>::from(f)));
  return double(f);
}

Bytes stored(const Doubles& values, int32_t dtype) {
  Bytes bytes(values.size() * static_cast<size_t>(s3d::element_size(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto f = static_cast<float>(values[i]);
    if (dtype == s3d::kFloat64) reinterpret_cast<double*>(bytes.data())[i] = values[i];
    if (dtype == s3d::kFloat32) reinterpret_cast<float*>(bytes.data())[i] = f;
    if (dtype == s3d::kBFloat16)
      reinterpret_cast<uint16_t*>(bytes.data())[i] = s3d::Narrow<s3d::BFloat16>::from(f).bits;
    if (dtype == s3d::kFloat16)
      reinterpret_cast<uint16_t*>(bytes.data())[i] = s3d::Narrow<s3d::Float16>::from(f).bits;
  }
  return bytes;
}

double value(const Bytes& bytes, int32_t dtype, size_t i) {
  if (dtype == s3d::kFloat64) return reinterpret_cast<const double*>(bytes.data())[i];
  if (dtype == s3d::kFloat32) return double(reinterpret_cast<const float*>(bytes.data())[i]);
  const uint16_t bits = reinterpret_cast<const uint16_t*>(bytes.data())[i];
  return dtype == s3d::kBFloat16 ? double(s3d::widen(s3d::BFloat16{bits}))
                                 : double(s3d::widen(s3d::Float16{bits}));
}

struct Case {
  int64_t rows, channels;
  int32_t dtype;
  bool affine, relu, side;
};

Doubles normal(size_t n, double scale, double centre, int32_t dtype, std::mt19937* engine) {
  std::normal_distribution<double> draw(centre, scale);
  Doubles values(n);
  for (double& v : values) v = rounded(draw(*engine), dtype);
  return values;
}

// Bytes of all results, judged if asked.
Bytes run(int32_t threads, int32_t path, const Case& k, bool judged) {
  std::mt19937 engine(3);
  const auto n = static_cast<size_t>(k.rows), c = static_cast<size_t>(k.channels);
  const int32_t sums = k.dtype == s3d::kFloat64 ? s3d::kFloat64 : s3d::kFloat32;
  const double fine = sums == s3d::kFloat64 ? 1e-13 : 2e-5;
  const double unit = k.dtype == s3d::kBFloat16 ? 0x1p-7 : k.dtype == s3d::kFloat16 ? 0x1p-10 : 0;
  const double eps = 1e-3;
  const Doubles x = normal(n * c, 2, 5, k.dtype, &engine),
                g = normal(n * c, 1, 0, k.dtype, &engine),
                side = normal(n * c, 1, 0, k.dtype, &engine),
                weight = normal(c, 1, 0, sums, &engine), bias = normal(c, 1, 0, sums, &engine);
  const Bytes bx = stored(x, k.dtype), bg = stored(g, k.dtype), bs = stored(side, k.dtype),
              bw = stored(weight, sums), bb = stored(bias, sums);
  Bytes y(bx.size()), dx(bx.size()), dside(bx.size()), mean(bw.size()), var(bw.size()),
      dweight(bw.size()), dbias(bw.size());
  s3d::NormCall call{};
  call.threads = threads;
  call.path = path;
  call.dtype = k.dtype;
  call.relu = k.relu;
  call.rows = k.rows;
  call.channels = k.channels;
  call.eps = eps;
  call.x = bx.data();
  call.weight = k.affine ? bw.data() : nullptr;
  call.bias = k.affine ? bb.data() : nullptr;
  call.side = k.side ? bs.data() : nullptr;
  call.y = y.data();
  call.mean = mean.data();
  call.var = var.data();
  require(s3d_norm_train(&call) == s3d::kOk, "norm_train");
  call.y = dx.data();
  require(s3d_norm_apply(&call) == s3d::kOk && dx == y, "norm_apply");
  call.grad = bg.data();
  call.side = k.side ? y.data() : nullptr;
  call.dside = k.side ? dside.data() : nullptr;
  call.y = dx.data();
  call.dweight = dweight.data();
  call.dbias = dbias.data();
  require(s3d_norm_grad(&call) == s3d::kOk, "norm_grad");

  const auto near = [&](double got, double wanted, double size, const char* what) {
    require(std::fabs(got - wanted) <= unit * size + fine * (1 + size), what);
  };
  for (size_t a = 0; judged && a < c; ++a) {
    const double w = k.affine ? weight[a] : 1, b = k.affine ? bias[a] : 0;
    const double count = n ? double(n) : 1;
    double m = 0, v = 0, plain = 0, weighted = 0;
    for (size_t i = a; i < n * c; i += c) m += x[i] / count;
    for (size_t i = a; i < n * c; i += c) v += (x[i] - m) * (x[i] - m) / count;
    near(value(mean, sums, a), m, 0, "mean");
    near(value(var, sums, a), v, std::fabs(v) * 1e-3, "variance");
    const double unit_scale = 1 / std::sqrt(v + eps);
    Doubles masked(n * c);
    for (size_t i = a; i < n * c; i += c) {
      const double unit_row = (x[i] - m) * unit_scale, plain_norm = unit_row * w + b;
      double out = k.side ? plain_norm + side[i] : plain_norm;
      if (k.relu && out < 0) out = 0;
      const double got = value(y, k.dtype, i);
      near(got, out, std::fabs(plain_norm) + std::fabs(side[i]), "output");
      masked[i] = k.relu && got <= 0 ? 0 : g[i];
      plain += masked[i];
      weighted += masked[i] * unit_row;
      if (k.side) require(value(dside, k.dtype, i) == masked[i], "gradient of the side");
    }
    const double largest = std::sqrt(count) * 4;
    require(std::fabs(value(dbias, sums, a) - plain) <= fine * largest, "gradient of the bias");
    require(std::fabs(value(dweight, sums, a) - weighted) <= fine * largest * 4,
            "gradient of the weight");
    for (size_t i = a; i < n * c; i += c) {
      const double unit_row = (x[i] - m) * unit_scale;
      const double inner = masked[i] - plain / count - unit_row * weighted / count;
      near(value(dx, k.dtype, i), inner * unit_scale * w, std::fabs(inner * unit_scale * w),
           "gradient of the features");
    }
  }
  Bytes all;
  for (const Bytes* part : {&y, &mean, &var, &dx, &dside, &dweight, &dbias})
    all.insert(all.end(), part->begin(), part->end());
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const int32_t path = argc > 1 ? std::atoi(argv[1]) : 0;
  const int64_t most = argc > 2 ? std::atoll(argv[2]) : 1300;
  if (!(s3d_paths() >> (path ? path : s3d_default_path()) & 1)) {
    std::printf("path %d is not here: skipped\n", path);
    return 0;
  }
  for (const int64_t rows : {int64_t(0), int64_t(1), int64_t(37), most})
    for (const int64_t channels : {1, 5, 16, 37, 96})
      for (int32_t dtype = 0; dtype < 4; ++dtype)
        for (int kind = 0; kind < 6; ++kind) {
          // Without a side; a side comes before a ReLU alone.
          const Case k{rows, channels, dtype, kind % 2 == 0, kind >= 2, kind >= 4};
          const Bytes first = run(1, path, k, true);
          for (const int32_t threads : {2, 3, 8})
            require(run(threads, path, k, false) == first, "norms differ between thread counts");
        }
  std::printf("norm, path %d: all equal\n", path ? path : s3d_default_path());
  return 0;
}
