// What crosses the border between Python and the engine: plain C structures, mirrored in engines/native/abi.py.
// All sizes and strides are int64 and in elements; the last axis of every view is contiguous.
#pragma once
#include <stdint.h>

extern "C" {

enum RegardType { REGARD_FLOAT32 = 0, REGARD_BFLOAT16 = 1, REGARD_FLOAT16 = 2 };
enum RegardBias { REGARD_NO_BIAS = 0, REGARD_DENSE = 1, REGARD_ALIBI = 2, REGARD_RELATIVE = 3 };

// A tensor (batch, heads, tokens, width).
struct RegardView {
  void* data;
  int64_t batch, head, row;
};

// One of the disjoint masks that a call's mask is split into; positions are visited by residue classes of `step`.
struct RegardMask {
  const int64_t* code;  // null: everything is allowed
  const void* const* tables;
  int64_t step;
};

// Everything that turns query and key into scores.
struct RegardCall {
  int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
  int64_t offset;  // position of the first query
  int64_t type;
  int64_t threads;
  int64_t halves;  // products of bfloat16 inputs: 0 in float32, 1 by AVX-512 BF16, 2 by AMX
  RegardView query, key, value;
  double scale, softcap;  // softcap 0: none
  int64_t masks;
  const RegardMask* mask;
  int64_t bias_kind;
  const float* bias;       // dense: 4 strides below; ALiBi: slopes (heads); relative: (1|heads, 2 reach + 1)
  int64_t bias_stride[4];  // batch, head, query, key; 0 where it broadcasts
  int64_t bias_reach, bias_blocks;  // blocks: some of it may be −inf
};

// Which sums of the state are wanted, and at which place of its last axis each linear column goes (−1: not wanted).
struct RegardWant {
  int64_t output, entropy, squares, count, least, top, columns;
  int64_t position, square, distance;
  int64_t first, first_count;
  int64_t bands;
  const int64_t *band, *band_low, *band_high;  // place; low ≤ k − q ≤ high
  int64_t groups;
  const int64_t* group;        // place
  const uint8_t* group_keys;   // (groups, 1|batch, keys): 1 where the key belongs to the group
  int64_t group_batch, group_stride;
  int64_t matches;
  const int64_t *match, *match_low, *match_high;  // place; low ≤ k − q ≤ high
  const int32_t *match_queries, *match_keys;      // (matches, batch, queries), (matches, batch, keys): ids; a query's −1 is no key's
  int64_t match_query_batch, match_query_stride, match_key_batch, match_key_stride;
};

// The state of every row, as regard.statistics.state.State: contiguous, null where not wanted.
struct RegardState {
  double *m, *l, *u, *r, *c;
  float* o;
  int64_t* count;
  double* least;
  double* top_scores;
  int64_t* top_keys;
};

// The second fold. `total` and `peak` are (batch, heads, grid_q, grid_k); `first_key` is a multiple of the cell and of 16.
struct RegardColumns {
  const double *m, *log_l;  // (batch, heads, queries): the state's own m, and ln l
  float *received, *received_max;  // (batch, heads, keys), null where not wanted
  int64_t cell, grid_q, grid_k;
  int64_t origin, first_key;  // where the first row and the first column of cells begin; keys before are passed over
  float *total, *peak;
  float* by_offset;      // (batch, heads, queries + keys − 1): weights summed along q − k, the smallest first; may be null
  int64_t vectors;       // how many sums of weighted queries
  const float* given;    // (batch, heads, queries, vectors): the factor of each query
  float* weighted;       // (batch, heads, keys, vectors): Σ over queries of factor · weight; null where not wanted
};

// What is read of the rows, (batch, heads, queries) each, null where not wanted.
struct RegardLook {
  float *lse, *entropy, *effective_keys, *max_weight, *min_weight, *sum_squares, *spread;
  float* columns;      // (columns, batch, heads, queries)
  int64_t* argmax;
  double* log_l;       // never null: ln l, for the second fold
  int64_t* cell_rows;  // (batch, heads, grid_q): queries of each row of cells that attend something
};

// The gradient of the first fold: that of every part of the state, and where the results go (added to zeros).
struct RegardGradient {
  const double* m;               // (batch, heads, queries): the state's own m
  const double *l, *u, *r, *c;   // null: zero; c is (batch, heads, queries, columns)
  const float* o;                // (batch, heads, queries, value_dim), contiguous; null: zero
  float *query, *key, *value;    // contiguous, float32; null where not needed
  double* bias;                  // contiguous, in the shape of the bias's tensor; null where not needed
  int64_t bias_count;            // how many numbers it has
  int64_t bias_stride[4];        // batch, head, query, key; 0 where the bias broadcasts
};
}
