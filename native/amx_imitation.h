// The tile instructions in plain C++, for processors without them. They do what the manual says and die where a processor
// would raise an exception: a configuration that is not valid, a tile that was not configured, shapes that do not fit.
#pragma once
#include <stdint.h>
#include <stdlib.h>

#include "tile_shapes.h"

namespace REGARD_ISA {

constexpr int TILES = 8;

struct Imitation {
  bool is_new;  // shapes were read, and take effect when a tile is used
  TileShapes shapes;
  bool configured;
  int bytes[TILES], rows[TILES];
  uint8_t tile[TILES][16][64];
};
static thread_local Imitation imitation;

static inline void must(bool holds) {
  if (!holds) abort();
}

// What ldtilecfg does with the 64 bytes that it read.
static inline void imitate_configure() {
  TileShapes shapes = imitation.shapes;
  __builtin_memset(&imitation, 0, sizeof(imitation));
  if (shapes.palette == 0) return;  // back to the state without tiles
  must(shapes.palette == 1 && shapes.start == 0);
  for (uint8_t byte : shapes.reserved) must(byte == 0);
  for (int t = 0; t < 16; t++) {
    int bytes = shapes.bytes[t], rows = shapes.rows[t];
    must(bytes <= 64 && rows <= 16 && (bytes == 0) == (rows == 0));
    must(t < TILES || bytes == 0);
    if (t < TILES) imitation.bytes[t] = bytes, imitation.rows[t] = rows;
  }
  imitation.configured = true;
}

static inline void imitate_release() { __builtin_memset(&imitation, 0, sizeof(imitation)); }

static inline void must_be_tile(int t) {
  if (imitation.is_new) imitate_configure();
  must(imitation.configured && t >= 0 && t < TILES && imitation.rows[t] > 0);
}

static inline void imitate_zero(int t) {
  must_be_tile(t);
  __builtin_memset(imitation.tile[t], 0, sizeof(imitation.tile[t]));
}

static inline void imitate_load(int t, const void* from, int64_t stride) {
  imitate_zero(t);
  for (int r = 0; r < imitation.rows[t]; r++)
    __builtin_memcpy(imitation.tile[t][r], (const char*)from + r * stride, (size_t)imitation.bytes[t]);
}

static inline void imitate_store(int t, void* to, int64_t stride) {
  must_be_tile(t);
  for (int r = 0; r < imitation.rows[t]; r++)
    __builtin_memcpy((char*)to + r * stride, imitation.tile[t][r], (size_t)imitation.bytes[t]);
}

static inline uint32_t tile_word(int t, int row, int at) {
  uint32_t word;
  __builtin_memcpy(&word, imitation.tile[t][row] + 4 * at, 4);
  return word;
}
static inline float upper_half(uint32_t x) { return __builtin_bit_cast(float, x & 0xffff0000u); }
static inline float lower_half(uint32_t x) { return __builtin_bit_cast(float, x << 16); }

// tdpbf16ps: the lower and the upper numbers of the pairs are summed apart, then both sums added to what is there.
static inline void imitate_product(int c, int a, int b) {
  must_be_tile(c), must_be_tile(a), must_be_tile(b);
  must(a != b && a != c && b != c);
  int rows = imitation.rows[c], lanes = imitation.bytes[c] / 4, pairs = imitation.bytes[a] / 4;
  must(imitation.bytes[c] % 4 == 0 && imitation.bytes[a] % 4 == 0);
  must(imitation.rows[a] == rows && imitation.rows[b] == pairs && imitation.bytes[b] == imitation.bytes[c]);
  for (int r = 0; r < rows; r++)
    for (int n = 0; n < lanes; n++) {
      float lower = 0, upper = 0;
      for (int k = 0; k < pairs; k++) {
        uint32_t x = tile_word(a, r, k), y = tile_word(b, k, n);
        lower = __builtin_fmaf(lower_half(x), lower_half(y), lower);
        upper = __builtin_fmaf(upper_half(x), upper_half(y), upper);
      }
      float total = __builtin_bit_cast(float, tile_word(c, r, n)) + (lower + upper);
      __builtin_memcpy(imitation.tile[c][r] + 4 * n, &total, 4);
    }
}

}  // namespace REGARD_ISA
