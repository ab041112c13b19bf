// Weight-stationary convolution. For a tile of output rows that stays in cache, each tap's pairs
// are a sub-range; register blocks read input rows in place and add into the tile. The tap of (i,
// i) pairs goes first and stores, so nothing is cleared and nothing gathered for it.
#include "conv.h"

#include "abi.h"
#include "order.h"

namespace s3d {
namespace {

// Measured, see bench/bench_cpu.py: bytes of output rows of a tile, and the fewest tiles worth
// having.
constexpr int64_t kTileBytes = 512 << 10;
constexpr int64_t kFewestBf16Rows = 1024;  // fewer fill blocks of 32 badly
constexpr int64_t kFewestRows = 256, kMostRows = 4096, kFewestItems = 16;
constexpr int64_t kPanelRows = 96;  // rows widened to float32 at a time

template <class E>
using Sum = typename SumType<E>::type;

// One (group, tap) as panels [column block][k][width], zero beyond the last column.
template <class E>
void pack_weight(const E* w, int64_t stride_k, int64_t stride_n, int64_t k, int64_t n,
                 int64_t width, Sum<E>* to) {
  for (int64_t o = 0; o < n; o += width, to += k * width) {
    const int64_t columns = std::min(width, n - o);
    if (columns < width) std::fill(to, to + k * width, Sum<E>(0));
    const E* from = w + o * stride_n;
    if (stride_n == 1) {
      for (int64_t i = 0; i < k; ++i)
        for (int64_t c = 0; c < columns; ++c) to[i * width + c] = widen(from[i * stride_k + c]);
    } else {
      // Some rows of the panel at a time, which stay in the first cache until they are whole.
      constexpr int64_t kRows = 16;
      for (int64_t b = 0; b < k; b += kRows)
        for (int64_t c = 0; c < columns; ++c)
          for (int64_t i = b, e = std::min(k, b + kRows); i < e; ++i)
            to[i * width + c] = widen(from[c * stride_n + i * stride_k]);
    }
  }
}

struct Tiling {
  int64_t rows, tiles, columns, blocks;
};

// Rows per tile, and columns per block where there are few tiles.
Tiling tiling_of(const ConvCall& c, int64_t panel, int64_t bytes, int64_t fewest) {
  const int64_t width = std::max(c.channels_in, c.channels_out) * bytes;
  Tiling t;
  t.rows = std::max(fewest, std::min(kMostRows, kTileBytes / width));
  t.tiles = ceil_div(c.num_out, t.rows);
  const int64_t panels = ceil_div(c.channels_out, panel);
  const int64_t wanted =
      std::min(panels, ceil_div(kFewestItems, std::max<int64_t>(1, t.tiles * c.groups)));
  t.columns = ceil_div(panels, wanted) * panel;
  t.blocks = ceil_div(c.channels_out, t.columns);
  return t;
}

// Calls f(list, weight tap) with the identity first.
template <class F>
void each_tap(const ConvCall& c, const F& f) {
  for (int64_t s = 0; s < c.taps; ++s) {
    const int64_t t = c.identity < 0 ? s : s == 0 ? c.identity : s <= c.identity ? s - 1 : s;
    f(t, c.flags & kMirror ? c.taps - 1 - t : t);
  }
}

template <class T>
void clear_tile(T* y, int64_t ld, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) std::fill(y + r * ld, y + r * ld + columns, T(0));
}

// The last step of a tile of float32 sums: scale, bias, residual, activation, one rounding.
template <class E>
void finish_half(const ConvCall& c, const Kernels& kernels, const float* sums, int64_t ld,
                 int64_t row0, int64_t rows, int64_t channel, int64_t columns) {
  const auto *bias = static_cast<const float*>(c.bias), *scale = static_cast<const float*>(c.scale);
  const auto* residual = static_cast<const uint16_t*>(c.residual);
  FinishHalf f{};
  f.sums = sums;
  f.lds = ld;
  f.rows = rows;
  f.columns = columns;
  f.scale = scale ? scale + channel : nullptr;
  f.bias = bias ? bias + channel : nullptr;
  f.residual = residual ? residual + row0 * c.ldr + channel : nullptr;
  f.ldr = c.ldr;
  f.y = static_cast<uint16_t*>(c.y) + row0 * c.ldy + channel;
  f.ldy = c.ldy;
  f.half = std::is_same<E, Float16>::value;
  f.activation = c.activation;
  f.alpha = static_cast<float>(c.alpha);
  kernels.finish_half(f);
}

template <class E>
void convolve(const ConvCall& c, const Kernels& kernels) {
  using T = Sum<E>;
  constexpr bool kWide = std::is_same<E, T>::value;
  const Matmul<T>& mm = matmul_of<T>(kernels);
  const int64_t k = c.channels_in, n = c.channels_out, panel = mm.panel(n);
  const int64_t packed_size = k * ceil_div(n, panel) * panel;
  const auto *x = static_cast<const E*>(c.x), *w = static_cast<const E*>(c.w),
             *residual = static_cast<const E*>(c.residual);
  const auto *bias = static_cast<const T*>(c.bias), *scale = static_cast<const T*>(c.scale);
  auto* y = static_cast<E*>(c.y);

  Buffer<T> packed(c.groups * c.taps * packed_size);
  parallel_for(c.threads, c.groups * c.taps, [&](int64_t i) {
    pack_weight(w + i / c.taps * c.w_group + i % c.taps * c.w_tap, c.w_in, c.w_out, k, n, panel,
                packed.data() + i * packed_size);
  });

  const Tiling tiling = tiling_of(c, panel, sizeof(T), kFewestRows);
  const bool store_all = c.flags & kDisjoint;
  const int64_t items = tiling.tiles * c.groups * tiling.blocks;
  parallel_for(c.threads, items, [&](int64_t item) {
    const int64_t block = item % tiling.blocks, g = item / tiling.blocks % c.groups,
                  tile = item / tiling.blocks / c.groups;
    const int64_t row0 = tile * tiling.rows, row1 = std::min(c.num_out, row0 + tiling.rows),
                  rows = row1 - row0;
    const int64_t column0 = block * tiling.columns, columns = std::min(n - column0, tiling.columns);
    const int64_t channel = g * n + column0;
    const E* xg = x + g * k;
    Buffer<T> sums(kWide ? 0 : rows * columns), wide(kWide ? 0 : std::min(kPanelRows, rows) * k);
    T* tile_y;
    int64_t ld;
    if constexpr (kWide) {
      tile_y = y + row0 * c.ldy + channel;
      ld = c.ldy;
    } else {
      tile_y = sums.data();
      ld = columns;
    }
    if (c.identity < 0 && !store_all) clear_tile(tile_y, ld, rows, columns);
    each_tap(c, [&](int64_t list, int64_t tap) {
      const bool here = list == c.identity;
      const Range range = here ? Range{row0, row1} : tile_range(c.out, c.splits, list, row0, row1);
      if (range.begin == range.end) return;
      Multiply<T> j;
      j.w = packed.data() + (g * c.taps + tap) * packed_size + column0 * k;
      j.y = tile_y;
      j.ldy = ld;
      j.base = row0;
      j.k = k;
      j.columns = columns;
      j.panel = panel;
      j.store = here || store_all;
      if constexpr (kWide) {
        j.x = here ? xg + row0 * c.ldx : xg;
        j.ldx = c.ldx;
        j.src = here ? nullptr : c.in + range.begin;
        j.dst = here ? nullptr : c.out + range.begin;
        j.n = range.end - range.begin;
        mm.multiply(j);
      } else {
        for (int64_t p = range.begin; p < range.end; p += kPanelRows) {
          j.n = std::min(kPanelRows, range.end - p);
          widen_rows(kernels, here ? xg + p * c.ldx : xg, c.ldx, here ? nullptr : c.in + p, j.n, k,
                     wide.data(), k);
          j.x = wide.data();
          j.ldx = k;
          j.src = nullptr;
          j.dst = here ? nullptr : c.out + p;
          j.y = here ? tile_y + (p - row0) * ld : tile_y;
          mm.multiply(j);
        }
      }
    });
    if constexpr (kWide) {
      Finish<T> f{tile_y,
                  ld,
                  rows,
                  columns,
                  scale ? scale + channel : nullptr,
                  bias ? bias + channel : nullptr,
                  nullptr,
                  c.ldr,
                  c.activation,
                  static_cast<T>(c.alpha)};
      if (residual) f.residual = residual + row0 * c.ldr + channel;
      if (f.scale || f.bias || f.residual || f.activation != kNone) mm.finish(f);
    } else {
      finish_half<E>(c, kernels, tile_y, ld, row0, rows, channel, columns);
    }
  });
}

// bfloat16 as it is: rows are gathered into a panel, channels padded to multiples of 32.
void convolve_bf16(const ConvCall& c, const Kernels& kernels, const Bf16Kernels& products) {
  const int64_t k = c.channels_in, n = c.channels_out, k32 = ceil_div(k, 32) * 32,
                n32 = ceil_div(n, 32) * 32;
  const int64_t packed_size = k32 * n32;
  const auto *x = static_cast<const uint16_t*>(c.x), *w = static_cast<const uint16_t*>(c.w);
  Buffer<uint16_t> packed(c.groups * c.taps * packed_size);
  parallel_for(c.threads, c.groups * c.taps, [&](int64_t i) {
    products.pack(w + i / c.taps * c.w_group + i % c.taps * c.w_tap, c.w_in, c.w_out, k, n,
                  packed.data() + i * packed_size);
  });
  const Tiling tiling = tiling_of(c, 32, sizeof(float), kFewestBf16Rows);
  const bool store_all = c.flags & kDisjoint;
  const int64_t step =
      std::max<int64_t>(32, 16384 / std::max<int64_t>(k32, 1) / 32 * 32);  // a panel of 32 KB
  parallel_for(c.threads, tiling.tiles * c.groups * tiling.blocks, [&](int64_t item) {
    const int64_t block = item % tiling.blocks, g = item / tiling.blocks % c.groups,
                  tile = item / tiling.blocks / c.groups;
    const int64_t row0 = tile * tiling.rows, row1 = std::min(c.num_out, row0 + tiling.rows),
                  rows = row1 - row0;
    const int64_t column0 = block * tiling.columns, columns = std::min(n - column0, tiling.columns),
                  wide = ceil_div(columns, 32) * 32;
    const uint16_t* xg = x + g * k;
    Buffer<float> sums(rows * wide);
    Buffer<uint16_t> panel(step * k32);
    clear_bytes(panel.data(), step * k32 * 2);  // channels beyond k stay 0
    if (c.identity < 0 && !store_all) std::fill(sums.data(), sums.data() + rows * wide, 0.0f);
    alignas(64) unsigned char saved[64];
    products.enter(saved);
    each_tap(c, [&](int64_t list, int64_t tap) {
      const bool here = list == c.identity;
      const Range range = here ? Range{row0, row1} : tile_range(c.out, c.splits, list, row0, row1);
      Bf16Multiply j{};
      j.w = packed.data() + (g * c.taps + tap) * packed_size + column0 * k32;
      j.k = k32;
      j.columns = wide;
      j.base = row0;
      j.lds = wide;
      j.store = here || store_all;
      int64_t p = range.begin;
      if (here && k == k32) {  // whole blocks are read in place
        j.n = rows / 32 * 32;
        j.x = xg + row0 * c.ldx;
        j.ldx = c.ldx;
        j.sum = sums.data();
        products.multiply(j);
        p += j.n;
      }
      for (; p < range.end; p += step) {
        j.n = std::min(step, range.end - p);
        products.gather(here ? xg + p * c.ldx : xg, c.ldx, here ? nullptr : c.in + p, j.n, k, k32,
                        panel.data());
        j.x = panel.data();
        j.ldx = k32;
        j.dst = here ? nullptr : c.out + p;
        j.sum = here ? sums.data() + (p - row0) * wide : sums.data();
        products.multiply(j);
      }
    });
    products.leave(saved);
    finish_half<BFloat16>(c, kernels, sums.data(), wide, row0, rows, g * n + column0, columns);
  });
}

// One channel in, one out, per group.
template <class E>
void convolve_depthwise(const ConvCall& c, const Kernels& kernels) {
  using T = Sum<E>;
  const int64_t channels = c.groups;
  const auto *x = static_cast<const E*>(c.x), *w = static_cast<const E*>(c.w),
             *residual = static_cast<const E*>(c.residual);
  const auto *bias = static_cast<const T*>(c.bias), *scale = static_cast<const T*>(c.scale);
  auto* y = static_cast<E*>(c.y);
  Buffer<T> packed(c.taps * channels);
  for (int64_t t = 0; t < c.taps; ++t)
    for (int64_t g = 0; g < channels; ++g)
      packed[t * channels + g] = widen(w[g * c.w_group + t * c.w_tap]);
  const int64_t tile = std::max<int64_t>(
      64, std::min<int64_t>(kMostRows, (128 << 10) / (channels * static_cast<int64_t>(sizeof(T)))));
  parallel_for(c.threads, ceil_div(c.num_out, tile), [&](int64_t i) {
    const int64_t row0 = i * tile, row1 = std::min(c.num_out, row0 + tile);
    Buffer<T> sums((row1 - row0) * channels), added(residual ? channels : 0);
    std::fill(sums.data(), sums.data() + sums.size(), T(0));
    each_tap(c, [&](int64_t list, int64_t tap) {
      const Range range = tile_range(c.out, c.splits, list, row0, row1);
      const T* wt = packed.data() + tap * channels;
      for (int64_t p = range.begin; p < range.end; ++p) {
        const E* from = x + int64_t(c.in[p]) * c.ldx;
        T* to = sums.data() + (c.out[p] - row0) * channels;
        for (int64_t a = 0; a < channels; ++a) to[a] += widen(from[a]) * wt[a];
      }
    });
    Finish<T> f{sums.data(), channels, 1, channels,     scale,
                bias,        nullptr,  0, c.activation, static_cast<T>(c.alpha)};
    for (int64_t r = row0; r < row1; ++r) {
      f.y = sums.data() + (r - row0) * channels;
      if (residual) {
        for (int64_t a = 0; a < channels; ++a) added[a] = widen(residual[r * c.ldr + a]);
        f.residual = added.data();
      }
      matmul_of<T>(kernels).finish(f);
      for (int64_t a = 0; a < channels; ++a) y[r * c.ldy + a] = Narrow<E>::from(f.y[a]);
    }
  });
}

}  // namespace
}  // namespace s3d

using namespace s3d;

S3D_API int32_t s3d_conv(const ConvCall* call) {
  return guarded([&] {
    const ConvCall& c = *call;
    if (c.num_out == 0 || c.channels_out == 0 || c.groups == 0) return;
    if (!(c.flags & (kSorted | kMirror))) throw BadArgument{};
    const int32_t path = resolve_path(c.path);
    const Kernels& kernels = kernels_of(path);
    const Bf16Kernels* products = bf16_kernels_of(path);
    prefer_huge_pages(c.y, static_cast<size_t>(c.num_out * c.ldy * element_size(c.dtype)));
    with_dtype(c.dtype, [&](auto e) {
      using E = typename decltype(e)::type;
      if (c.groups > 1 && c.channels_in == 1 && c.channels_out == 1)
        convolve_depthwise<E>(c, kernels);
      else if (products && std::is_same<E, BFloat16>::value)
        convolve_bf16(c, kernels, *products);
      else
        convolve<E>(c, kernels);
    });
  });
}
