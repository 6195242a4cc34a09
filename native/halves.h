// The two products for bfloat16 inputs, in pairs of numbers: AVX-512 BF16 where the processor has it, AMX for whole tiles
// where it has that too. Scores and sums stay float32; weights are rounded to bfloat16 on their way to the output.
#pragma once
#include "amx.h"
#include "load.h"

#if REGARD_LANES == 16

#define REGARD_BF16 __attribute__((target("avx512bf16")))

namespace REGARD_ISA {

typedef uint32_t Pair __attribute__((may_alias, aligned(2)));  // two bfloat16 numbers, the first in the lower half

// total + lower · lower + upper · upper, lane by lane.
REGARD_BF16 static inline __attribute__((always_inline)) vf add_pairs(vf total, vi a, vi b) {
  return (vf)_mm512_dpbf16_ps((__m512)total, (__m512bh)a, (__m512bh)b);
}

template <int ROWS>
REGARD_BF16 static inline __attribute__((always_inline)) void half_rows(const uint16_t* rows, int64_t stride,
                                                                        const uint32_t* panel, int64_t pairs,
                                                                        float* scores) {
  vf total[ROWS][PANEL_VECTORS];
  REGARD_UNROLL for (int r = 0; r < ROWS; r++) REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) total[r][c] = (vf){};
  for (int64_t d = 0; d < pairs; d++) {
    vi lane[PANEL_VECTORS];
    REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) lane[c] = *(const vi*)(panel + d * PANEL + c * LANES);
    REGARD_UNROLL for (int r = 0; r < ROWS; r++) {
      vi row = splat_int((int32_t)*(const Pair*)(rows + r * stride + 2 * d));
      REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) total[r][c] = add_pairs(total[r][c], row, lane[c]);
    }
  }
  REGARD_UNROLL for (int r = 0; r < ROWS; r++)
    REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) store(scores + r * PANEL + c * LANES, total[r][c]);
}

template <int ROWS>
REGARD_BF16 static inline __attribute__((always_inline)) void half_sums(const uint32_t* columns, const uint32_t* weights,
                                                                        int64_t pairs, const float* factor, float* sums) {
  vf total[ROWS][PANEL_VECTORS];
  REGARD_UNROLL for (int r = 0; r < ROWS; r++)
    REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++)
      total[r][c] = load(sums + r * PANEL + c * LANES) * load(factor + c * LANES);
  for (int64_t j = 0; j < pairs; j++) {
    vi weight[PANEL_VECTORS];
    REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) weight[c] = *(const vi*)(weights + j * PANEL + c * LANES);
    REGARD_UNROLL for (int r = 0; r < ROWS; r++) {
      vi column = splat_int((int32_t)columns[r * TILE / 2 + j]);
      REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) total[r][c] = add_pairs(total[r][c], column, weight[c]);
    }
  }
  REGARD_UNROLL for (int r = 0; r < ROWS; r++)
    REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) store(sums + r * PANEL + c * LANES, total[r][c]);
}

// Numbers of 16 bits that `score_halves` may write to `tail`.
static inline int64_t tail_size(int64_t dim) { return 2 * AMX_ROWS * dim; }

// scores[count][PANEL] = rows · panel, the rows in place. How a product is summed depends on the width alone, never on
// its place among the rows, so that every fold finds the same bits: the last rows go through tiles too. Of the scores
// room for 2 · AMX_ROWS rows is written to.
REGARD_BF16 static inline void score_halves(bool tiles, const uint16_t* rows, int64_t stride, int64_t count,
                                            const uint32_t* panel, int64_t dim, uint16_t* tail, float* scores) {
  constexpr int64_t ROWS = 2 * AMX_ROWS;
  int64_t r = 0;
  if (tiles && dim % AMX_DEPTH == 0) {
    for (; r + ROWS <= count; r += ROWS) amx_scores(rows + r * stride, stride, panel, dim / 2, scores + r * PANEL);
    if (r < count && r > 0) {
      amx_scores(rows + (count - ROWS) * stride, stride, panel, dim / 2, scores + (count - ROWS) * PANEL);
    } else if (r < count) {
      for (int64_t i = 0; i < ROWS; i++) __builtin_memcpy(tail + i * dim, rows + (i < count ? i : 0) * stride, 2 * (size_t)dim);
      amx_scores(tail, dim, panel, dim / 2, scores);
    }
    return;
  }
  for (; r + 8 <= count; r += 8) half_rows<8>(rows + r * stride, stride, panel, dim / 2, scores + r * PANEL);
  for (; r < count; r++) half_rows<1>(rows + r * stride, stride, panel, dim / 2, scores + r * PANEL);
}

// sums[width][PANEL] = sums · factor + columns · weights, where columns[width][TILE / 2] and weights[·][PANEL] are pairs of
// keys, 0 past the last one up to a multiple of AMX_DEPTH keys.
REGARD_BF16 static inline void add_halves(bool tiles, const uint32_t* columns, const uint32_t* weights, int64_t count,
                                          int64_t width, const float* factor, float* sums) {
  int64_t d = 0;
  if (tiles)
    for (; d + 2 * AMX_ROWS <= width; d += 2 * AMX_ROWS) {
      for (int64_t r = 0; r < 2 * AMX_ROWS; r++)
        for (int c = 0; c < PANEL_VECTORS; c++) {
          float* at = sums + (d + r) * PANEL + c * LANES;
          store(at, load(at) * load(factor + c * LANES));
        }
      amx_sums(columns + d * TILE / 2, TILE / 2, weights, (count + AMX_DEPTH - 1) / AMX_DEPTH, sums + d * PANEL);
    }
  int64_t pairs = (count + 1) / 2;
  for (; d + 8 <= width; d += 8) half_sums<8>(columns + d * TILE / 2, weights, pairs, factor, sums + d * PANEL);
  for (; d < width; d++) half_sums<1>(columns + d * TILE / 2, weights, pairs, factor, sums + d * PANEL);
}

// Pairs are stored as the integers that they are read as: a compiler may take a float for something else, and move it.
static inline void store_pairs(uint32_t* to, vf pairs) { *(vi*)to = (vi)pairs; }

// panel[pair][lane] of `count` rows of pairs; 0 in the lanes that are left.
static inline void pack_pairs(const uint16_t* rows, int64_t stride, int64_t count, int64_t pairs, uint32_t* panel) {
  for (int c = 0; c < PANEL_VECTORS; c++)
    for (int64_t d = 0; d < pairs; d += LANES) {
      vf x[LANES];
      for (int64_t r = 0; r < LANES; r++) {
        const Pair* from = (const Pair*)(rows + (c * LANES + r) * stride) + d;
        vi row = {};
        if (c * LANES + r < count)
          for (int64_t i = 0; i < LANES && d + i < pairs; i++) row[i] = (int32_t)from[i];
        x[r] = (vf)row;
      }
      transpose(x);
      for (int64_t i = 0; i < LANES && d + i < pairs; i++) store_pairs(panel + (d + i) * PANEL + c * LANES, x[i]);
    }
}

// columns[d][pair] of a tile of values, transposed, 0 past the last of `count` keys.
static inline void pack_values(const uint16_t* values, int64_t stride, int64_t count, int64_t width, uint32_t* columns) {
  for (int64_t d = 0; d < width; d += LANES)
    for (int64_t j = 0; j < TILE / 2; j += LANES) {
      vf x[LANES];
      for (int64_t r = 0; r < LANES; r++) {
        const uint16_t* from = values + 2 * (j + r) * stride + d;
        vi pair = {};
        bool first = 2 * (j + r) < count, second = 2 * (j + r) + 1 < count;
        if (d + LANES <= width && second)
          pair = __builtin_convertvector(*(const Halves*)from, vi) | __builtin_convertvector(*(const Halves*)(from + stride), vi) << 16;
        else
          for (int64_t i = 0; i < LANES && d + i < width; i++)
            pair[i] = (int32_t)((first ? from[i] : 0u) | (second ? (uint32_t)from[stride + i] : 0u) << 16);
        x[r] = (vf)pair;
      }
      transpose(x);
      for (int64_t i = 0; i < LANES && d + i < width; i++) store_pairs(columns + (d + i) * TILE / 2 + j, x[i]);
    }
}

// pairs[j][lane] of weights rounded to bfloat16, 0 past the last row up to a multiple of AMX_DEPTH.
static inline void round_weights(const float* weights, int64_t count, uint32_t* pairs) {
  const vi half = splat_int(0x8000), upper = splat_int((int32_t)0xffff0000);
  int64_t padded = (count + AMX_DEPTH - 1) / AMX_DEPTH * AMX_DEPTH;
  for (int64_t j = 0; j < padded; j += 2)
    for (int c = 0; c < PANEL_VECTORS; c++) {
      vi a = {}, b = {};
      if (j < count) a = (vi)load(weights + j * PANEL + c * LANES) + half;
      if (j + 1 < count) b = (vi)load(weights + (j + 1) * PANEL + c * LANES) + half;
      *(vi*)(pairs + j / 2 * PANEL + c * LANES) = (vi)(((vu)a) >> 16) | (b & upper);
    }
}

}  // namespace REGARD_ISA

#else  // never called: the library offers bfloat16 products with AVX-512 only

namespace REGARD_ISA {
static inline int64_t tail_size(int64_t) { return 0; }
static inline void score_halves(bool, const uint16_t*, int64_t, int64_t, const uint32_t*, int64_t, uint16_t*, float*) {}
static inline void add_halves(bool, const uint32_t*, const uint32_t*, int64_t, int64_t, const float*, float*) {}
static inline void pack_pairs(const uint16_t*, int64_t, int64_t, int64_t, uint32_t*) {}
static inline void pack_values(const uint16_t*, int64_t, int64_t, int64_t, uint32_t*) {}
static inline void round_weights(const float*, int64_t, uint32_t*) {}
static inline void amx_begin() {}
static inline void amx_end() {}
}  // namespace REGARD_ISA

#endif
