// States of rows in memory, and how two states of one row become one (regard.statistics.state.merge, one row at a time).
#pragma once
#include "abi.h"
#include "simd.h"

namespace REGARD_ISA {

constexpr int64_t NO_KEY = -1;

// A score and its key; larger scores come first, earlier keys among equals, and no key last.
template <class Score>
REGARD_INLINE bool before(Score score, int64_t key, Score other_score, int64_t other_key) {
  return score > other_score || (score == other_score && key != NO_KEY && (other_key == NO_KEY || key < other_key));
}

// Puts a score into a descending list of `top`, whose last entry falls out.
template <class Score>
static inline void insert(Score* scores, int64_t* keys, int64_t top, Score score, int64_t key) {
  int64_t at = top;
  while (at > 0 && before(score, key, scores[at - 1], keys[at - 1])) at--;
  if (at == top) return;
  for (int64_t i = top - 1; i > at; i--) { scores[i] = scores[i - 1]; keys[i] = keys[i - 1]; }
  scores[at] = score;
  keys[at] = key;
}

// Where one row of a state lies.
struct Row {
  double *m, *l, *u, *r, *c;
  float* o;
  int64_t* count;
  double* least;
  double* top_scores;
  int64_t* top_keys;
};

static inline Row row_of(const RegardState& s, int64_t at, int64_t columns, int64_t value_dim, int64_t top) {
  return {s.m + at, s.l + at, s.u ? s.u + at : nullptr, s.r ? s.r + at : nullptr, s.c ? s.c + at * columns : nullptr,
          s.o ? s.o + at * value_dim : nullptr, s.count ? s.count + at : nullptr,
          s.least ? s.least + at : nullptr,
          s.top_scores ? s.top_scores + at * top : nullptr, s.top_keys ? s.top_keys + at * top : nullptr};
}

static inline void clear(const Row& row, int64_t columns, int64_t value_dim, int64_t top) {
  *row.m = -INF;
  *row.l = 0;
  if (row.u) *row.u = 0;
  if (row.r) *row.r = 0;
  for (int64_t i = 0; row.c && i < columns; i++) row.c[i] = 0;
  for (int64_t d = 0; row.o && d < value_dim; d++) row.o[d] = 0;
  if (row.count) *row.count = 0;
  if (row.least) *row.least = INF;
  for (int64_t i = 0; row.top_scores && i < top; i++) { row.top_scores[i] = -INF; row.top_keys[i] = NO_KEY; }
}

// Adds state b to a, all but o: the caller adds o with the two factors, the old one of a and the new one of b.
static inline void merge(const Row& a, const Row& b, int64_t columns, int64_t top, float* old_factor, float* new_factor) {
  double m = *b.m > *a.m || *b.m != *b.m ? *b.m : *a.m;
  double shift_a = *a.m == -INF ? 0 : *a.m - m, shift_b = *b.m == -INF ? 0 : *b.m - m;
  double alpha = shift_a == 0 ? 1 : __builtin_exp(shift_a), beta = shift_b == 0 ? 1 : __builtin_exp(shift_b);
  if (a.u) *a.u = alpha * (*a.u + shift_a * *a.l) + beta * (*b.u + shift_b * *b.l);
  if (a.r) *a.r = alpha * alpha * *a.r + beta * beta * *b.r;
  for (int64_t i = 0; a.c && i < columns; i++) a.c[i] = alpha * a.c[i] + beta * b.c[i];
  if (a.count) *a.count += *b.count;
  if (a.least && *b.least < *a.least) *a.least = *b.least;
  for (int64_t i = 0; a.top_scores && i < top; i++) insert(a.top_scores, a.top_keys, top, b.top_scores[i], b.top_keys[i]);
  *a.l = alpha * *a.l + beta * *b.l;
  *a.m = m;
  *old_factor = (float)alpha;
  *new_factor = (float)beta;
}

}  // namespace REGARD_ISA
