// AMX: products of tiles of 16 rows by 32 bfloat16 numbers (Intel's tile extension). A processor without it runs the same
// code on an imitation, which the tests use (REGARD_IMITATE_AMX).
#pragma once
#include "gemm.h"

namespace REGARD_ISA {

constexpr int64_t AMX_ROWS = 16, AMX_DEPTH = 32;  // rows of a tile, bfloat16 numbers in a row

}  // namespace REGARD_ISA

#if REGARD_LANES == 16

#include "tile_shapes.h"
#if defined(REGARD_IMITATE_AMX)
#include "amx_imitation.h"
#endif

namespace REGARD_ISA {

typedef uint16_t Halves __attribute__((vector_size(32), aligned(2)));

#if defined(REGARD_IMITATE_AMX)
#define REGARD_AMX __attribute__((noinline))  // as functions for another target are
#define REGARD_HARDWARE(instruction) ""
// Read by an instruction and understood later, so that the compiler knows no more of it than of ldtilecfg.
#define REGARD_CONFIGURE(...) \
  do { \
    vi between; \
    __asm__ volatile("vmovdqu64 %2, %1\n\tvmovdqu64 %1, %0" : "=m"(imitation.shapes), "=&v"(between) : __VA_ARGS__); \
    imitation.is_new = true; \
  } while (0)
#define REGARD_IMITATION(call) call
#else
#define REGARD_AMX __attribute__((target("amx-tile,amx-bf16")))
#define REGARD_HARDWARE(instruction) instruction
#define REGARD_CONFIGURE(...) __asm__ volatile("ldtilecfg %0" ::__VA_ARGS__)
#define REGARD_IMITATION(call)
#endif

// The instructions are written here, for those of GCC do not say which memory they touch, so that stores before them may
// be dropped or moved: _tile_loadconfig names 8 of its 64 bytes (GCC 12, mended in 14), _tile_loadd none (GCC 12, 14).
// The imitation is reached by the same operands: what the compiler is told is what is tested.
#define REGARD_TILE_ZERO(t) \
  do { \
    __asm__ volatile(REGARD_HARDWARE("tilezero %%tmm" #t) ::); \
    REGARD_IMITATION(imitate_zero(t)); \
  } while (0)
#define REGARD_TILE_LOAD(t, from, stride) \
  do { \
    const void* tile_from = (from); \
    int64_t tile_stride = (stride); \
    __asm__ volatile(REGARD_HARDWARE("tileloadd (%0,%1,1), %%tmm" #t) : "+r"(tile_from) : "r"(tile_stride) : "memory"); \
    REGARD_IMITATION(imitate_load(t, tile_from, tile_stride)); \
  } while (0)
#define REGARD_TILE_STORE(t, to, stride) \
  do { \
    void* tile_to = (to); \
    int64_t tile_stride = (stride); \
    REGARD_IMITATION(imitate_store(t, tile_to, tile_stride)); \
    __asm__ volatile(REGARD_HARDWARE("tilestored %%tmm" #t ", (%0,%1,1)") : "+r"(tile_to) : "r"(tile_stride) : "memory"); \
  } while (0)
#define REGARD_TILE_PRODUCT(c, a, b) \
  do { \
    __asm__ volatile(REGARD_HARDWARE("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c) ::); \
    REGARD_IMITATION(imitate_product(c, a, b)); \
  } while (0)

static inline __attribute__((always_inline)) void amx_configure(const TileShapes& shapes) {
  REGARD_CONFIGURE("m"(shapes) : "memory");
}

REGARD_AMX static inline void amx_begin() { amx_configure(TILE_SHAPES); }
REGARD_AMX static inline void amx_end() {
  __asm__ volatile(REGARD_HARDWARE("tilerelease") ::: "memory");
  REGARD_IMITATION(imitate_release());
}

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
