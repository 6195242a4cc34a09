// Vectors of floats, one width for each instruction set, and the few functions the folds need.
// This header is compiled several times with different flags, so everything is static, inline and inside REGARD_ISA:
// an inline function of the standard library could be kept in its AVX-512 copy and crash an older processor.
#pragma once
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define REGARD_LANES 16
#elif defined(__AVX2__)
#define REGARD_LANES 8
#else
#define REGARD_LANES 4
#endif

#define REGARD_INLINE static inline __attribute__((always_inline))

namespace REGARD_ISA {

constexpr int LANES = REGARD_LANES;
typedef float vf __attribute__((vector_size(LANES * 4), aligned(LANES * 4)));
typedef float vf_unaligned __attribute__((vector_size(LANES * 4), aligned(4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4), aligned(LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4), aligned(LANES * 4)));
constexpr int DOUBLES = LANES / 2;  // in a vector
typedef double vd __attribute__((vector_size(LANES * 4), aligned(LANES * 4)));
typedef float vf_half __attribute__((vector_size(LANES * 2), aligned(LANES * 2)));

constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;
constexpr double LN2_EXACT = 0.693147180559945309417;
constexpr float INF = __builtin_inff();

REGARD_INLINE vf splat(float x) { return x - (vf){}; }
REGARD_INLINE vi splat_int(int32_t x) { return x - (vi){}; }
REGARD_INLINE vf load(const float* from) { return *(const vf*)from; }
REGARD_INLINE vf load_unaligned(const float* from) { return *(const vf_unaligned*)from; }
REGARD_INLINE void store(float* to, vf x) { *(vf*)to = x; }
REGARD_INLINE void store_unaligned(float* to, vf x) { *(vf_unaligned*)to = x; }
REGARD_INLINE vd splat_double(double x) { return x - (vd){}; }
REGARD_INLINE vd load(const double* from) { return *(const vd*)from; }
REGARD_INLINE void store(double* to, vd x) { *(vd*)to = x; }
REGARD_INLINE vd widen(const float* from) { return __builtin_convertvector(*(const vf_half*)from, vd); }
REGARD_INLINE vf select(vi where, vf yes, vf no) { return where ? yes : no; }
REGARD_INLINE vf absolute(vf x) { return (vf)((vi)x & splat_int(0x7fffffff)); }

// The larger one; y where either is NaN, so that maximum(bound, x) keeps a NaN in x.
REGARD_INLINE vf maximum(vf x, vf y) {
#if defined(__AVX512F__)
  return (vf)_mm512_max_ps((__m512)x, (__m512)y);
#else
  return x > y ? x : y;
#endif
}

// The smaller one; y where either is NaN.
REGARD_INLINE vf minimum(vf x, vf y) {
#if defined(__AVX512F__)
  return (vf)_mm512_min_ps((__m512)x, (__m512)y);
#else
  return x < y ? x : y;
#endif
}

REGARD_INLINE vf ramp() {
  vf x = {};
  for (int lane = 0; lane < LANES; lane++) x[lane] = (float)lane;
  return x;
}

REGARD_INLINE vd double_ramp() {
  vd x = {};
  for (int lane = 0; lane < DOUBLES; lane++) x[lane] = (double)lane;
  return x;
}

// Lanes whose bit is set are all ones.
REGARD_INLINE vi lanes_of(uint64_t bits) {
#if defined(__AVX512F__)
  return (vi)_mm512_maskz_set1_epi32((__mmask16)bits, -1);
#else
  vi bit = {};
  for (int lane = 0; lane < LANES; lane++) bit[lane] = 1 << lane;
  return (splat_int((int32_t)(bits & ((1u << LANES) - 1))) & bit) != 0;
#endif
}

REGARD_INLINE vf keep(uint64_t bits, vf yes, vf no) {
#if defined(__AVX512F__)
  return (vf)_mm512_mask_blend_ps((__mmask16)bits, (__m512)no, (__m512)yes);
#else
  return select(lanes_of(bits), yes, no);
#endif
}

// One bit for each lane that is all ones.
REGARD_INLINE uint64_t bits_of(vi where) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)where);
#elif defined(__AVX2__)
  return (uint64_t)(unsigned)_mm256_movemask_ps((__m256)where);
#elif defined(__x86_64__)
  return (uint64_t)(unsigned)_mm_movemask_ps((__m128)where);
#else
  uint64_t bits = 0;
  for (int lane = 0; lane < LANES; lane++) bits |= (uint64_t)(where[lane] & 1) << lane;
  return bits;
#endif
}

constexpr float LEAST = -126.0f;  // 2^x is 0 below, as a processor that flushes denormals gives it

// 2^x for −127 ≤ x ≤ 126, and for any x ≤ 126 where vectors have 16 lanes: a minimax polynomial, right to 1e-7. Its constant
// term is exactly 1, for a rescaling by 2^0 that is not 1 would let the sums drift with every tile. NaN stays NaN; 0 below LEAST.
REGARD_INLINE vf power2_within(vf x) {
#if defined(__AVX512F__)
  vf rest = (vf)_mm512_reduce_ps((__m512)x, 9);  // what is above the next lower whole number; 0 of an infinity
  vf y = splat(1.879318584e-3f) * rest + splat(8.990995242e-3f);
  y = y * rest + splat(5.581867585e-2f);
  y = y * rest + splat(2.401592715e-1f);
  y = y * rest + splat(6.931517388e-1f);
  y = y * rest + splat(1.0f);
  // Below LEAST the result is a denormal, which becomes 0 where a fold runs (see FlushDenormals).
  return (vf)_mm512_scalef_ps((__m512)y, (__m512)x);
#else
  const vf magic = splat(12582912.0f);  // 1.5 · 2^23: adding it rounds to whole numbers
  vf shifted = x + magic, rest = x - (shifted - magic);
  vf y = splat(1.326472665e-3f) * rest + splat(9.671511296e-3f);
  y = y * rest + splat(5.550733584e-2f);
  y = y * rest + splat(2.402224244e-1f);
  y = y * rest + splat(6.931470036e-1f);
  y = y * rest + splat(1.0f);
  vu exponent = (vu)shifted << 23;  // unsigned: of a blocked pair x may be anything, and then this wraps
  y = (vf)((vi)((vu)y + exponent) | (x != x));
  return (vf)((vi)y & ~(x < splat(LEAST)));
#endif
}

// The same for any x ≤ 126, on every processor.
REGARD_INLINE vf power2(vf x) {
#if defined(__AVX512F__)
  return power2_within(x);
#else
  return power2_within(maximum(splat(LEAST - 1.0f), x));
#endif
}

// tanh, with a relative error of a few roundings near 0 too: a polynomial there, (1 − e)/(1 + e) elsewhere.
REGARD_INLINE vf hyperbolic_tangent(vf x) {
  vf size = absolute(x), square = x * x;
  vf small = splat(-5.70498872745e-3f) * square + splat(2.06390887954e-2f);
  small = small * square + splat(-5.37397155531e-2f);
  small = small * square + splat(1.33314422036e-1f);
  small = small * square + splat(-3.33332819422e-1f);
  small = small * square * x + x;
  vf e = power2(splat(-2.0f * LOG2E) * size);
  vf large = (splat(1.0f) - e) / (splat(1.0f) + e);
  large = (vf)((vi)large | ((vi)x & splat_int((int32_t)0x80000000)));
  return select(size < splat(0.625f), small, large);
}

// LANES float16 numbers in float32.
typedef uint16_t vh_unaligned __attribute__((vector_size(LANES * 2), aligned(2)));
REGARD_INLINE vf widen_float16(const void* from) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#elif defined(__F16C__)
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#else
  vi bits = __builtin_convertvector(*(const vh_unaligned*)from, vi);
  vi sign = (bits & splat_int(0x8000)) << 16, rest = (bits & splat_int(0x7fff)) << 13;
  vi normal = rest + splat_int(112 << 23);  // the exponent's bias is 15 there and 127 here
  vi endless = normal + splat_int(112 << 23);
  vi small = (vi)((vf)(rest + splat_int(113 << 23)) - splat(0x1p-14f));  // what has no leading 1
  vi tiny = rest < splat_int(1 << 23), finite = rest < splat_int(31 << 23);
  return (vf)(((small & tiny) | (normal & ~tiny & finite) | (endless & ~finite)) | sign);
#endif
}

REGARD_INLINE float sum(vf x) {
  float total = 0;
  for (int lane = 0; lane < LANES; lane++) total += x[lane];
  return total;
}

// Denormals count as 0 while a fold runs: they are slow, and no weight that small can be seen.
struct FlushDenormals {
#if defined(__x86_64__)
  unsigned before = _mm_getcsr();
  FlushDenormals() { _mm_setcsr(before | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before); }
#elif defined(__aarch64__)
  uint64_t before;
  FlushDenormals() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" ::"r"(before | (1u << 24)));
  }
  ~FlushDenormals() { __asm__ volatile("msr fpcr, %0" ::"r"(before)); }
#endif
};

}  // namespace REGARD_ISA
