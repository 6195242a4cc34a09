// Tensors as the folds want them: rows in float32, panels transposed. Knows types and strides, nothing of attention.
#pragma once
#include "abi.h"
#include "gemm.h"

namespace REGARD_ISA {

REGARD_INLINE float from_bfloat16(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  return __builtin_bit_cast(float, bits);
}

REGARD_INLINE float from_float16(uint16_t x) {
#if defined(__F16C__)
  return _cvtsh_ss(x);
#else  // as widen_float16
  uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = (uint32_t)(x & 0x7fff) << 13;
  if (rest < 1u << 23)  // no leading 1: as a float of the same bits it would be flushed to 0
    rest = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, rest + (113u << 23)) - 0x1p-14f);
  else
    rest += rest < 31u << 23 ? 112u << 23 : 224u << 23;
  return __builtin_bit_cast(float, rest | sign);
#endif
}

// `width` numbers at element `at` of a tensor, as float32.
static inline void read_row(const RegardView& view, int64_t type, int64_t at, int64_t width, float* to) {
  if (type == REGARD_FLOAT32) {
    const float* from = (const float*)view.data + at;
    for (int64_t d = 0; d < width; d++) to[d] = from[d];
  } else {
    const uint16_t* from = (const uint16_t*)view.data + at;
    if (type == REGARD_BFLOAT16) for (int64_t d = 0; d < width; d++) to[d] = from_bfloat16(from[d]);
    else for (int64_t d = 0; d < width; d++) to[d] = from_float16(from[d]);
  }
}

// Rows `first, first + step, …` of one head in float32: in place where they lie side by side, else copied to `space`.
// A tile is read many times, and rows that lie a power of two apart would push each other out of the caches.
struct Rows {
  const float* data;
  int64_t stride;
};
static inline Rows rows_of(const RegardView& view, int64_t type, int64_t batch, int64_t head, int64_t first,
                           int64_t step, int64_t count, int64_t width, float* space) {
  int64_t at = batch * view.batch + head * view.head + first * view.row, stride = step * view.row;
  if (type == REGARD_FLOAT32 && stride <= 2 * width) return {(const float*)view.data + at, stride};
  for (int64_t r = 0; r < count; r++) read_row(view, type, at + r * stride, width, space + r * width);
  return {space, width};
}

// One row of a head of 16-bit numbers.
static inline const uint16_t* halves_of(const RegardView& view, int64_t batch, int64_t head, int64_t row) {
  return (const uint16_t*)view.data + batch * view.batch + head * view.head + row * view.row;
}

// A square of LANES × LANES numbers transposed: x[r] lane c becomes x[c] lane r.
REGARD_INLINE void transpose(vf* x) {
  for (int half = LANES / 2; half > 0; half /= 2) {
    vf y[LANES];
    REGARD_UNROLL for (int i = 0; i < LANES / 2; i++) {
      vf a = x[i], b = x[i + LANES / 2];
#if REGARD_LANES == 16
      y[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      y[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif REGARD_LANES == 8
      y[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
      y[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
      y[2 * i] = __builtin_shufflevector(a, b, 0, 4, 1, 5);
      y[2 * i + 1] = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
    }
    REGARD_UNROLL for (int i = 0; i < LANES; i++) x[i] = y[i];
  }
}

// panel[d][lane] = rows[lane][d] · factor for `count` ≤ PANEL rows; 0 in the lanes that are left.
static inline void pack_panel(const float* rows, int64_t stride, int64_t count, int64_t width, float factor, float* panel) {
  for (int c = 0; c < PANEL_VECTORS; c++) {
    int64_t have = count - c * LANES;
    have = have < 0 ? 0 : have > LANES ? LANES : have;
    const float* from = rows + c * LANES * stride;
    float* to = panel + c * LANES;
    int64_t d = 0;
    for (; d + LANES <= width && have; d += LANES) {
      vf x[LANES];
      for (int64_t r = 0; r < LANES; r++) x[r] = r < have ? load_unaligned(from + r * stride + d) * splat(factor) : (vf){};
      transpose(x);
      for (int64_t r = 0; r < LANES; r++) store(to + (d + r) * PANEL, x[r]);
    }
    for (; d < width; d++)
      for (int64_t r = 0; r < LANES; r++) to[d * PANEL + r] = r < have ? from[r * stride + d] * factor : 0.0f;
  }
}

// rows[lane][d] (stride apart) = panel[d][lane] · factor[lane], plus what is there already · old[lane] unless `old` is null.
static inline void unpack_panel(const float* panel, int64_t count, int64_t width, const float* factor, const float* old,
                                float* rows, int64_t stride) {
  for (int c = 0; c < PANEL_VECTORS && c * LANES < count; c++) {
    int64_t have = count - c * LANES;
    have = have > LANES ? LANES : have;
    const float* from = panel + c * LANES;
    float* to = rows + c * LANES * stride;
    vf scale = load(factor + c * LANES);
    int64_t d = 0;
    for (; d + LANES <= width; d += LANES) {
      vf x[LANES];
      for (int64_t r = 0; r < LANES; r++) x[r] = load(from + (d + r) * PANEL) * scale;
      transpose(x);
      for (int64_t r = 0; r < have; r++) {
        float* at = to + r * stride + d;
        store_unaligned(at, old ? load_unaligned(at) * splat(old[c * LANES + r]) + x[r] : x[r]);
      }
    }
    for (; d < width; d++)
      for (int64_t r = 0; r < have; r++) {
        float x = from[d * PANEL + r] * factor[c * LANES + r];
        to[r * stride + d] = old ? to[r * stride + d] * old[c * LANES + r] + x : x;
      }
  }
}

// Memory for one thread, handed out piece by piece; `base` null only counts.
struct Space {
  char* base;
  int64_t used;
  template <class T>
  T* take(int64_t count) {
    T* here = base ? (T*)(base + used) : nullptr;
    used += (count * (int64_t)sizeof(T) + 63) / 64 * 64;
    return here;
  }
};

}  // namespace REGARD_ISA
