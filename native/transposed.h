// The third product of attention on one tile, which the backward pass needs: the lanes are summed over, and rows come out
// in place. Knows nothing of attention.
#pragma once
#include "gemm.h"

namespace REGARD_ISA {

#if REGARD_LANES == 16 || defined(__aarch64__)
constexpr int ACROSS = 4;  // vectors of a row at once; with TRANSPOSED_ROWS 24 of 32 registers accumulate
#else
constexpr int ACROSS = 2;  // 12 of 16
#endif
constexpr int TRANSPOSED_ROWS = 6;

// sums[row][d] += Σ_j weights[row][j] · rows[j][d] for `VECTORS` vectors of d, of which sums hold `width` numbers, and
// the first `count` of TRANSPOSED_ROWS rows.
template <int VECTORS>
REGARD_INLINE void product_transposed(const float* weights, const float* rows, int64_t stride, int64_t terms, int64_t count,
                                  int64_t width, float* sums, int64_t sums_stride) {
  vf total[TRANSPOSED_ROWS][VECTORS] = {};
  for (int64_t j = 0; j < terms; j++) {
    vf row[VECTORS];
    REGARD_UNROLL for (int c = 0; c < VECTORS; c++) row[c] = load(rows + j * stride + c * LANES);
    REGARD_UNROLL for (int r = 0; r < TRANSPOSED_ROWS; r++) {
      vf weight = splat(weights[r * PANEL + j]);
      REGARD_UNROLL for (int c = 0; c < VECTORS; c++) total[r][c] += weight * row[c];
    }
  }
  REGARD_UNROLL for (int r = 0; r < TRANSPOSED_ROWS; r++) {
    if (r >= count) return;
    REGARD_UNROLL for (int c = 0; c < VECTORS; c++) {
      float* at = sums + r * sums_stride + c * LANES;
      if (width >= (c + 1) * LANES) store_unaligned(at, load_unaligned(at) + total[r][c]);
      else for (int64_t lane = 0; lane < width - c * LANES; lane++) at[lane] += total[r][c][lane];
    }
  }
}

template <int VECTORS>
struct Across {
  static inline void add(int64_t vectors, const float* weights, const float* rows, int64_t stride, int64_t terms,
                         int64_t count, int64_t width, float* sums, int64_t sums_stride) {
    if (vectors == VECTORS) product_transposed<VECTORS>(weights, rows, stride, terms, count, width, sums, sums_stride);
    else Across<VECTORS - 1>::add(vectors, weights, rows, stride, terms, count, width, sums, sums_stride);
  }
};
template <>
struct Across<0> {
  static inline void add(int64_t, const float*, const float*, int64_t, int64_t, int64_t, int64_t, float*, int64_t) {}
};

// sums[count][width] += weights[count][terms ≤ PANEL] · rows[terms][width]: the product with the lanes summed over. Rows
// are aligned and filled up to whole vectors; of the weights whole blocks of TRANSPOSED_ROWS rows are read.
static inline void add_transposed(const float* weights, int64_t count, const float* rows, int64_t stride, int64_t terms,
                              int64_t width, float* sums, int64_t sums_stride) {
  for (int64_t d = 0; d < width; d += ACROSS * LANES) {
    int64_t vectors = (width - d + LANES - 1) / LANES;
    for (int64_t r = 0; r < count; r += TRANSPOSED_ROWS)
      Across<ACROSS>::add(vectors < ACROSS ? vectors : ACROSS, weights + r * PANEL, rows + d, stride, terms, count - r,
                          width - d, sums + r * sums_stride + d, sums_stride);
  }
}

}  // namespace REGARD_ISA
