// The two products of attention on one tile, in registers. A panel is LANES · COLUMNS rows of one side, transposed, so
// that every number of a row is one lane: no sum runs across a vector. The other side is read in place.
#pragma once
#include "simd.h"

namespace REGARD_ISA {

#if REGARD_LANES == 16
constexpr int PANEL_VECTORS = 3, BLOCK = 8;  // 24 of 32 registers accumulate
#elif defined(__aarch64__)
constexpr int PANEL_VECTORS = 3, BLOCK = 8;
#else
constexpr int PANEL_VECTORS = 3, BLOCK = 4;  // 12 of 16
#endif
constexpr int PANEL = PANEL_VECTORS * LANES;
constexpr int TILE = 64;  // rows of the other side in one tile
typedef float Lanes[PANEL] __attribute__((aligned(64)));

#define REGARD_UNROLL _Pragma("GCC unroll 16")

// scores[row][lane] = Σ rows[row][d] · lanes[d][lane], for `ROWS` rows and the first `VECTORS` vectors of a panel.
template <int ROWS, int VECTORS = PANEL_VECTORS>
REGARD_INLINE void product_rows(const float* rows, int64_t stride, const float* lanes, int64_t dim, float* scores) {
  vf total[ROWS][VECTORS];
  REGARD_UNROLL for (int r = 0; r < ROWS; r++) REGARD_UNROLL for (int c = 0; c < VECTORS; c++) total[r][c] = (vf){};
  for (int64_t d = 0; d < dim; d++) {
    vf lane[VECTORS];
    REGARD_UNROLL for (int c = 0; c < VECTORS; c++) lane[c] = load(lanes + d * PANEL + c * LANES);
    REGARD_UNROLL for (int r = 0; r < ROWS; r++) {
      vf row = splat(rows[r * stride + d]);
      REGARD_UNROLL for (int c = 0; c < VECTORS; c++) total[r][c] += row * lane[c];
    }
  }
  REGARD_UNROLL for (int r = 0; r < ROWS; r++)
    REGARD_UNROLL for (int c = 0; c < VECTORS; c++) store(scores + r * PANEL + c * LANES, total[r][c]);
}

// sums[row][lane] = sums[row][lane] · factor[lane] + Σ_j rows[j][row] · weights[j][lane], likewise.
template <int ROWS, int VECTORS = PANEL_VECTORS>
REGARD_INLINE void product_sums(const float* rows, int64_t stride, const float* weights, int64_t count,
                                const float* factor, float* sums) {
  vf total[ROWS][VECTORS];
  REGARD_UNROLL for (int r = 0; r < ROWS; r++) REGARD_UNROLL for (int c = 0; c < VECTORS; c++) {
    vf before = load(sums + r * PANEL + c * LANES);
    total[r][c] = factor ? before * load(factor + c * LANES) : before;
  }
  for (int64_t j = 0; j < count; j++) {
    __builtin_prefetch(rows + j * stride + 64 / sizeof(float));  // a cache line on: for the columns after these
    vf weight[VECTORS];
    REGARD_UNROLL for (int c = 0; c < VECTORS; c++) weight[c] = load(weights + j * PANEL + c * LANES);
    REGARD_UNROLL for (int r = 0; r < ROWS; r++) {
      vf row = splat(rows[j * stride + r]);
      REGARD_UNROLL for (int c = 0; c < VECTORS; c++) total[r][c] += row * weight[c];
    }
  }
  REGARD_UNROLL for (int r = 0; r < ROWS; r++)
    REGARD_UNROLL for (int c = 0; c < VECTORS; c++) store(sums + r * PANEL + c * LANES, total[r][c]);
}

template <int ROWS>
struct Rest {
  static inline void rows(int64_t count, const float* rows_, int64_t stride, const float* lanes, int64_t dim, float* scores) {
    if (count == ROWS) product_rows<ROWS>(rows_, stride, lanes, dim, scores);
    else Rest<ROWS - 1>::rows(count, rows_, stride, lanes, dim, scores);
  }
  static inline void sums(int64_t dims, const float* rows_, int64_t stride, const float* weights, int64_t count,
                          const float* factor, float* sums_) {
    if (dims == ROWS) product_sums<ROWS>(rows_, stride, weights, count, factor, sums_);
    else Rest<ROWS - 1>::sums(dims, rows_, stride, weights, count, factor, sums_);
  }
};
template <>
struct Rest<0> {
  static inline void rows(int64_t, const float*, int64_t, const float*, int64_t, float*) {}
  static inline void sums(int64_t, const float*, int64_t, const float*, int64_t, const float*, float*) {}
};

// scores[count][PANEL] of one tile: the rows in place against a packed panel [dim][PANEL].
static inline void score_tile(const float* rows, int64_t stride, int64_t count, const float* panel, int64_t dim, float* scores) {
  int64_t r = 0;
  for (; r + BLOCK <= count; r += BLOCK) product_rows<BLOCK>(rows + r * stride, stride, panel, dim, scores + r * PANEL);
  Rest<BLOCK - 1>::rows(count - r, rows + r * stride, stride, panel, dim, scores + r * PANEL);
}

// sums[dim][PANEL] (· factor) += the rows' columns weighted by weights[count][PANEL]; factor may be null.
static inline void add_product(const float* rows, int64_t stride, int64_t count, const float* weights, int64_t dim,
                               const float* factor, float* sums) {
  int64_t d = 0;
  for (; d + BLOCK <= dim; d += BLOCK) product_sums<BLOCK>(rows + d, stride, weights, count, factor, sums + d * PANEL);
  Rest<BLOCK - 1>::sums(dim - d, rows + d, stride, weights, count, factor, sums + d * PANEL);
}

}  // namespace REGARD_ISA
