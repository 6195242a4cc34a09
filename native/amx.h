// AMX: products of tiles of 16 rows by 32 bfloat16 numbers (Intel's tile extension). A processor without it runs the same
// code on an imitation, which the tests use (REGARD_IMITATE_AMX).
#pragma once
#include "gemm.h"

namespace REGARD_ISA {

constexpr int64_t AMX_ROWS = 16, AMX_DEPTH = 32;  // rows of a tile, bfloat16 numbers in a row

}  // namespace REGARD_ISA

#if REGARD_LANES == 16

namespace REGARD_ISA {

typedef uint16_t Halves __attribute__((vector_size(32), aligned(2)));
typedef uint32_t vu __attribute__((vector_size(64), aligned(64)));

// How the eight tiles are cut: all of them 16 rows of 64 bytes.
struct TileShapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

#if defined(REGARD_IMITATE_AMX)

#define REGARD_AMX
struct Imitation {
  uint32_t tile[8][16][16];
};
static thread_local Imitation imitation;
static inline float upper_half(uint32_t x) { return __builtin_bit_cast(float, x & 0xffff0000u); }
static inline float lower_half(uint32_t x) { return __builtin_bit_cast(float, x << 16); }
static inline void imitate_load(int t, const void* from, int64_t bytes) {
  for (int r = 0; r < 16; r++) __builtin_memcpy(imitation.tile[t][r], (const char*)from + r * bytes, 64);
}
static inline void imitate_store(int t, void* to, int64_t bytes) {
  for (int r = 0; r < 16; r++) __builtin_memcpy((char*)to + r * bytes, imitation.tile[t][r], 64);
}
static inline void imitate_product(int c, int a, int b) {
  for (int r = 0; r < 16; r++)
    for (int n = 0; n < 16; n++) {
      float total = __builtin_bit_cast(float, imitation.tile[c][r][n]);
      for (int k = 0; k < 16; k++) {
        uint32_t x = imitation.tile[a][r][k], y = imitation.tile[b][k][n];
        total += lower_half(x) * lower_half(y);
        total += upper_half(x) * upper_half(y);
      }
      imitation.tile[c][r][n] = __builtin_bit_cast(uint32_t, total);
    }
}
#define REGARD_TILE_ZERO(t) __builtin_memset(imitation.tile[t], 0, sizeof(imitation.tile[t]))
#define REGARD_TILE_LOAD(t, from, bytes) imitate_load(t, from, bytes)
#define REGARD_TILE_STORE(t, to, bytes) imitate_store(t, to, bytes)
#define REGARD_TILE_PRODUCT(c, a, b) imitate_product(c, a, b)
static inline void amx_begin() {}
static inline void amx_end() {}

#else

#define REGARD_AMX __attribute__((target("amx-tile,amx-bf16")))
#define REGARD_TILE_ZERO(t) _tile_zero(t)
#define REGARD_TILE_LOAD(t, from, bytes) _tile_loadd(t, from, bytes)
#define REGARD_TILE_STORE(t, to, bytes) _tile_stored(t, to, bytes)
#define REGARD_TILE_PRODUCT(c, a, b) _tile_dpbf16ps(c, a, b)
REGARD_AMX static inline void amx_begin() {
  TileShapes shapes;
  _tile_loadconfig(&shapes);
}
REGARD_AMX static inline void amx_end() { _tile_release(); }

#endif

// 32 rows of scores against a panel of pairs: two tiles of rows by three of lanes.
REGARD_AMX static inline void amx_scores(const uint16_t* rows, int64_t stride, const uint32_t* panel, int64_t pairs, float* scores) {
  REGARD_TILE_ZERO(0); REGARD_TILE_ZERO(1); REGARD_TILE_ZERO(2);
  REGARD_TILE_ZERO(3); REGARD_TILE_ZERO(4); REGARD_TILE_ZERO(5);
  const int64_t wide = PANEL * 4;
  for (int64_t d = 0; d < pairs; d += 16) {
    const uint32_t* lane = panel + d * PANEL;
    REGARD_TILE_LOAD(6, rows + 2 * d, stride * 2);
    REGARD_TILE_LOAD(7, lane, wide); REGARD_TILE_PRODUCT(0, 6, 7);
    REGARD_TILE_LOAD(7, lane + 16, wide); REGARD_TILE_PRODUCT(1, 6, 7);
    REGARD_TILE_LOAD(7, lane + 32, wide); REGARD_TILE_PRODUCT(2, 6, 7);
    REGARD_TILE_LOAD(6, rows + 16 * stride + 2 * d, stride * 2);
    REGARD_TILE_PRODUCT(5, 6, 7);
    REGARD_TILE_LOAD(7, lane + 16, wide); REGARD_TILE_PRODUCT(4, 6, 7);
    REGARD_TILE_LOAD(7, lane, wide); REGARD_TILE_PRODUCT(3, 6, 7);
  }
  REGARD_TILE_STORE(0, scores, wide); REGARD_TILE_STORE(1, scores + 16, wide); REGARD_TILE_STORE(2, scores + 32, wide);
  scores += 16 * PANEL;
  REGARD_TILE_STORE(3, scores, wide); REGARD_TILE_STORE(4, scores + 16, wide); REGARD_TILE_STORE(5, scores + 32, wide);
}

// 32 rows of sums += columns[32][…] · weights, over `depths` stretches of AMX_DEPTH keys.
REGARD_AMX static inline void amx_sums(const uint32_t* columns, int64_t stride, const uint32_t* weights, int64_t depths, float* sums) {
  const int64_t wide = PANEL * 4;
  float* second = sums + 16 * PANEL;
  REGARD_TILE_LOAD(0, sums, wide); REGARD_TILE_LOAD(1, sums + 16, wide); REGARD_TILE_LOAD(2, sums + 32, wide);
  REGARD_TILE_LOAD(3, second, wide); REGARD_TILE_LOAD(4, second + 16, wide); REGARD_TILE_LOAD(5, second + 32, wide);
  for (int64_t j = 0; j < depths * 16; j += 16) {
    const uint32_t* weight = weights + j * PANEL;
    REGARD_TILE_LOAD(6, columns + j, stride * 4);
    REGARD_TILE_LOAD(7, weight, wide); REGARD_TILE_PRODUCT(0, 6, 7);
    REGARD_TILE_LOAD(7, weight + 16, wide); REGARD_TILE_PRODUCT(1, 6, 7);
    REGARD_TILE_LOAD(7, weight + 32, wide); REGARD_TILE_PRODUCT(2, 6, 7);
    REGARD_TILE_LOAD(6, columns + 16 * stride + j, stride * 4);
    REGARD_TILE_PRODUCT(5, 6, 7);
    REGARD_TILE_LOAD(7, weight + 16, wide); REGARD_TILE_PRODUCT(4, 6, 7);
    REGARD_TILE_LOAD(7, weight, wide); REGARD_TILE_PRODUCT(3, 6, 7);
  }
  REGARD_TILE_STORE(0, sums, wide); REGARD_TILE_STORE(1, sums + 16, wide); REGARD_TILE_STORE(2, sums + 32, wide);
  REGARD_TILE_STORE(3, second, wide); REGARD_TILE_STORE(4, second + 16, wide); REGARD_TILE_STORE(5, second + 32, wide);
}

}  // namespace REGARD_ISA

#endif
