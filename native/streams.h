// Products of a few rows in float32 with many rows of a tensor, which are read once, in order, and widened in registers.
// Lanes lie along the width of a row. Knows types and strides, nothing of attention.
#pragma once
#include "load.h"

namespace REGARD_ISA {

struct Bfloat16 { uint16_t bits; };
struct Float16 { uint16_t bits; };

// LANES numbers in float32.
REGARD_INLINE vf wide(const float* from) { return load_unaligned(from); }
REGARD_INLINE vf wide(const Bfloat16* from) {
  return (vf)(__builtin_convertvector(*(const vh_unaligned*)from, vi) << 16);
}
REGARD_INLINE vf wide(const Float16* from) { return widen_float16(from); }

// Rows of ours are whole vectors: number d of a row lies at place(d), the rest in the highest lanes of the last vector.
REGARD_INLINE int64_t padded(int64_t width) { return (width + LANES - 1) / LANES * LANES; }
REGARD_INLINE int64_t place(int64_t d, int64_t width) { return d < width / LANES * LANES ? d : d + padded(width) - width; }

// A row as rows of ours are; 0 in the lanes that are left.
static inline void spread_row(const float* row, int64_t width, float* to) {
  for (int64_t d = width / LANES * LANES; d < padded(width); d++) to[d] = 0;
  for (int64_t d = 0; d < width; d++) to[place(d, width)] = row[d];
}

// The last width % LANES numbers of a row in the highest lanes, 0 in the others; nothing past the row is read.
template <class T>
REGARD_INLINE vf wide_rest(const T* row, int64_t width) {
  int64_t rest = width % LANES;
  if (width >= LANES) return (vf)((vi)wide(row + width - LANES) & lanes_of(~(uint64_t)0 << (LANES - rest)));
  T last[LANES] = {};
  for (int64_t i = 0; i < rest; i++) last[LANES - rest + i] = row[i];
  return wide(last);
}

// Lane i is the sum of x[i]. Each round adds halves of two vectors, so that half as many are left.
REGARD_INLINE vf sum_each(vf* x) {
  REGARD_UNROLL for (int half = LANES / 2; half > 0; half /= 2)
    REGARD_UNROLL for (int i = 0; i < half; i++) {
      vf a = x[i], b = x[i + half];
#if REGARD_LANES == 16
      x[i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23) +
             __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif REGARD_LANES == 8
      x[i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11) + __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
      x[i] = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
    }
  return x[0];
}

constexpr int MOST_SUMS = LANES == 16 ? 16 : 8;  // vectors that sum in registers, with room for what they add
constexpr int at_most(int a, int b) { return a < b ? a : b; }

constexpr int64_t AHEAD = 8192;  // bytes from what is read to what is asked for
// Into the second cache: asked for in the first, lines wait in its few places for misses, and reading takes longer.
#define REGARD_SOON(address) __builtin_prefetch(address, 0, 2)

// Rows of a tensor, read in order; `ahead` numbers further lies what will be read soon.
template <class T>
struct Stream {
  const T* rows;
  int64_t stride, width, ahead;
  const T* row(int64_t j) const { return rows + j * stride; }
  Stream from(int64_t j) const { return {row(j), stride, width, ahead}; }
};
template <class T>
static inline Stream<T> stream_of(const T* rows, int64_t stride, int64_t width) {
  int64_t bytes = width * (int64_t)sizeof(T);
  return {rows, stride, width, bytes > 0 && bytes < AHEAD ? AHEAD / bytes * stride : stride};
}

// products[row], lane by lane: each of ROWS rows times one row of the stream.
template <int ROWS, int WIDE, class T>
REGARD_INLINE void multiply(const float* ours, const Stream<T>& stream, int64_t j, vf (*products)[LANES], int64_t at) {
  vf total[ROWS] = {};
  const T* row = stream.row(j);
  int64_t d = 0, mine = padded(stream.width);
  // Unrolled, so that little stands between two loads: a processor looks a few hundred instructions ahead.
  for (; d + WIDE * LANES <= stream.width; d += WIDE * LANES)
    REGARD_UNROLL for (int w = 0; w < WIDE; w++) {
      REGARD_SOON(row + d + w * LANES + stream.ahead);
      vf x = wide(row + d + w * LANES);
      REGARD_UNROLL for (int r = 0; r < ROWS; r++) total[r] += load(ours + r * mine + d + w * LANES) * x;
    }
  for (; WIDE > 1 && d + LANES <= stream.width; d += LANES) {
    vf x = wide(row + d);
    REGARD_UNROLL for (int r = 0; r < ROWS; r++) total[r] += load(ours + r * mine + d) * x;
  }
  if (d < stream.width) {
    vf x = wide_rest(row, stream.width);
    REGARD_UNROLL for (int r = 0; r < ROWS; r++) total[r] += load(ours + r * mine + d) * x;
  }
  REGARD_UNROLL for (int r = 0; r < ROWS; r++) products[r][at] = total[r];
}

// products[row · apart + j] of our rows with LANES rows of the stream, by eights, fours, twos and ones; past `count` rows
// the last one again. Never inlined: beside other code its sums do not all stay in registers.
template <int ROWS, class T>
static __attribute__((noinline)) void multiply_rows(const float* ours, int64_t rows, const Stream<T>& stream, int64_t count, float* products,
                                 int64_t apart) {
  int64_t r = 0, mine = padded(stream.width);
  for (; r + ROWS <= rows; r += ROWS) {
    vf each[ROWS][LANES];
    for (int64_t j = 0; j < LANES; j++) multiply<ROWS, at_most(8, MOST_SUMS / ROWS)>(ours + r * mine, stream, j < count ? j : count - 1, each, j);
    REGARD_UNROLL for (int i = 0; i < ROWS; i++) store(products + (r + i) * apart, sum_each(each[i]));
  }
  if constexpr (ROWS > 1)
    multiply_rows<ROWS / 2>(ours + r * mine, rows - r, stream, count, products + r * apart, apart);
}

// ours[row][…] += Σ_j weights[row][j] · stream[j][…], WIDE vectors at once from `d` on, then what is left.
template <int ROWS, int WIDE, class T>
REGARD_INLINE void add_vectors(const Stream<T>& stream, int64_t count, const float* weights, int64_t apart, int64_t d, float* ours) {
  int64_t mine = padded(stream.width);
  for (; d + WIDE * LANES <= stream.width; d += WIDE * LANES) {
    vf total[ROWS][WIDE];
    REGARD_UNROLL for (int r = 0; r < ROWS; r++)
      REGARD_UNROLL for (int w = 0; w < WIDE; w++) total[r][w] = load(ours + r * mine + d + w * LANES);
    for (int64_t j = 0; j < count; j++) {
      const T* row = stream.row(j) + d;
      vf x[WIDE];
      REGARD_UNROLL for (int w = 0; w < WIDE; w++) {
        REGARD_SOON(row + w * LANES + stream.ahead);
        x[w] = wide(row + w * LANES);
      }
      REGARD_UNROLL for (int r = 0; r < ROWS; r++) {
        vf weight = splat(weights[r * apart + j]);
        REGARD_UNROLL for (int w = 0; w < WIDE; w++) total[r][w] += weight * x[w];
      }
    }
    REGARD_UNROLL for (int r = 0; r < ROWS; r++)
      REGARD_UNROLL for (int w = 0; w < WIDE; w++) store(ours + r * mine + d + w * LANES, total[r][w]);
  }
  if constexpr (WIDE > 1) {
    add_vectors<ROWS, WIDE / 2>(stream, count, weights, apart, d, ours);
  } else if (d < stream.width) {
    vf total[ROWS];
    REGARD_UNROLL for (int r = 0; r < ROWS; r++) total[r] = load(ours + r * mine + d);
    for (int64_t j = 0; j < count; j++) {
      vf x = wide_rest(stream.row(j), stream.width);
      REGARD_UNROLL for (int r = 0; r < ROWS; r++) total[r] += splat(weights[r * apart + j]) * x;
    }
    REGARD_UNROLL for (int r = 0; r < ROWS; r++) store(ours + r * mine + d, total[r]);
  }
}

// The same for any number of our rows.
template <int ROWS, class T>
static inline void add_rows(const Stream<T>& stream, int64_t count, const float* weights, int64_t apart, int64_t rows, float* ours) {
  int64_t r = 0, mine = padded(stream.width);
  for (; r + ROWS <= rows; r += ROWS)
    add_vectors<ROWS, at_most(8, MOST_SUMS / ROWS)>(stream, count, weights + r * apart, apart, 0, ours + r * mine);
  if constexpr (ROWS > 1) add_rows<ROWS / 2>(stream, count, weights + r * apart, apart, rows - r, ours + r * mine);
}

}  // namespace REGARD_ISA
