// bfloat16 products on AMX tiles with float32 sums: blocks of 32 x 32 in four accumulator tiles.
#include "dispatch.h"

#if defined(__AMX_BF16__) && defined(__AMX_TILE__) && defined(__AVX512F__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace s3d {
namespace {

#include "kernels_bf16.inc"

struct alignas(64) TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

bool permit() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// The thread may belong to another library that set tiles up for itself.
void enter(void* saved) {
  _tile_storeconfig(saved);
  TileConfig c = {};
  c.palette = 1;
  for (int i = 0; i < 8; ++i) {
    c.rows[i] = 16;
    c.row_bytes[i] = 64;
  }
  // GCC 12 tells its optimiser of the first 8 bytes alone.
  __asm__ volatile("" ::"r"(&c) : "memory");
  _tile_loadconfig(&c);
}

void leave(const void* saved) {
  if (*static_cast<const uint8_t*>(saved))
    _tile_loadconfig(saved);
  else
    _tile_release();
}

// Adds m rows of a 32 x 32 block to the sums of their rows.
template <bool kStore>
inline void add_rows(const Bf16Multiply& j, const float* block, int64_t p, int64_t m, int64_t o) {
  for (int64_t r = 0; r < m; ++r) {
    float* s = j.sum + (j.dst ? static_cast<int64_t>(j.dst[p + r]) - j.base : p + r) * j.lds + o;
    __m512 u = _mm512_load_ps(block + r * 32), v = _mm512_load_ps(block + r * 32 + 16);
    if (!kStore) {
      u = _mm512_add_ps(u, _mm512_loadu_ps(s));
      v = _mm512_add_ps(v, _mm512_loadu_ps(s + 16));
    }
    _mm512_storeu_ps(s, u);
    _mm512_storeu_ps(s + 16, v);
  }
}

template <bool kStore>
void multiply_rows(const Bf16Multiply& j) {
  alignas(64) float block[32 * 32];
  const long stride = static_cast<long>(j.ldx) * 2;
  for (int64_t o = 0; o < j.columns; o += 32) {
    const uint16_t* wo = j.w + o * j.k;
    for (int64_t p = 0; p < j.n; p += 32) {
      const int64_t m = j.n - p < 32 ? j.n - p : 32;
      const uint16_t *a = j.x + p * j.ldx, *b = wo;
      if (kStore && !j.dst && o == 0)
        for (int64_t r = p + 32, e = j.n < p + 64 ? j.n : p + 64; r < e; ++r)
          for (int64_t k = 0; k < j.k; k += 32) __builtin_prefetch(j.x + r * j.ldx + k);
      _tile_zero(0);
      _tile_zero(1);
      if (m <= 16) {  // half a block
        for (int64_t k = 0; k < j.k; k += 32, a += 32, b += 1024) {
          _tile_loadd(4, a, stride);
          _tile_loadd(6, b, 64);
          _tile_dpbf16ps(0, 4, 6);
          _tile_loadd(7, b + 512, 64);
          _tile_dpbf16ps(1, 4, 7);
        }
        _tile_stored(0, block, 128);
        _tile_stored(1, block + 16, 128);
        add_rows<kStore>(j, block, p, m, o);
        continue;
      }
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t k = 0; k < j.k; k += 32, a += 32, b += 1024) {
        _tile_loadd(4, a, stride);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 512, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * j.ldx, stride);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      if (kStore && !j.dst && m == 32) {  // rows in order: the tiles go straight to the sums
        float* s = j.sum + p * j.lds + o;
        const long bytes = static_cast<long>(j.lds) * 4;
        _tile_stored(0, s, bytes);
        _tile_stored(1, s + 16, bytes);
        _tile_stored(2, s + 16 * j.lds, bytes);
        _tile_stored(3, s + 16 * j.lds + 16, bytes);
        continue;
      }
      _tile_stored(0, block, 128);
      _tile_stored(1, block + 16, 128);
      _tile_stored(2, block + 512, 128);
      _tile_stored(3, block + 528, 128);
      add_rows<kStore>(j, block, p, m, o);
    }
  }
}

void multiply(const Bf16Multiply& j) {
  if (j.store)
    multiply_rows<true>(j);
  else
    multiply_rows<false>(j);
}

constexpr Bf16Kernels kTable = {permit, pack, gather, multiply, enter, leave};

}  // namespace

const Bf16Kernels* amx_kernels() { return &kTable; }

}  // namespace s3d
#else
namespace s3d {
const Bf16Kernels* amx_kernels() { return nullptr; }
}  // namespace s3d
#endif
