// The gradient of the state, made ready for one tile: d score = p · (base + entropy · x + squares · p + rows · lanes).
// `rows · lanes` is a product like any other: the gradient of o with the values, that of linear columns with their φ.
#pragma once
#include "scores.h"

namespace REGARD_ISA {

// How many lanes the linear columns add to the values: k from the panel's first key on, its square, the first keys, each
// group.
struct Extras {
  bool moments, squares, first;
  int64_t groups;
  int64_t count() const { return moments + squares + first + groups; }
};

static inline Extras extras_of(const RegardWant& want, const RegardGradient& gradient) {
  if (!gradient.c) return {};
  return {want.position >= 0 || want.square >= 0 || want.distance >= 0, want.square >= 0, want.first >= 0, want.groups};
}

// φ of a panel of keys, lanes[extra][lane], in the order of Extras. Positions count from the panel's first key.
static inline void fill_extras(const RegardWant& want, const Extras& extras, int64_t batch, Span keys, float* lanes) {
  for (int64_t x = 0; x < PANEL; x++) {
    float* to = lanes + x;
    float place = (float)x;
    bool there = x < keys.count;
    int64_t key = keys.first + x * keys.step;
    if (extras.moments) { *to = place; to += PANEL; }
    if (extras.squares) { *to = place * place; to += PANEL; }
    if (extras.first) { *to = there && key < want.first_count; to += PANEL; }
    for (int64_t i = 0; i < extras.groups; i++, to += PANEL)
      *to = there && want.group_keys[i * want.group_stride + batch * want.group_batch + key];
  }
}

// The rows of one tile.
struct StateGrad {
  const RegardWant* want;
  const RegardGradient* gradient;
  Extras extras;
  Span queries;
  int64_t batch, offset;  // row of the batch, and the position of the call's first query
  int64_t origin;  // where the first row lies in the state; the others follow step by step
  int64_t value_dim;
  float m[TILE], rest[TILE];  // m in units of the scores, and what rounding took from it, as an exponent of two
  float log2_scale;           // from a difference of scores to an exponent of two
  float base[TILE], entropy[TILE], squares[TILE];
  double row_base[TILE];  // base without the terms that depend on the panel
  const float* rows;      // gradient of o, then one number for each extra
  int64_t stride;

  // The gradient of column `place` in row r.
  double column(int64_t r, int64_t place) const {
    return gradient->c[(origin + r * queries.step) * want->columns + place];
  }
};

// Reads the gradient of the tile's rows; `space` holds TILE · (value_dim + extras) floats.
static inline void read_state_grad(const Head& head, Span queries, StateGrad* grads, float* space) {
  const RegardCall& call = *head.call;
  const RegardGradient& gradient = *grads->gradient;
  int64_t step = queries.step, extras = grads->extras.count();
  grads->queries = queries;
  grads->batch = head.batch;
  grads->offset = call.offset;
  double unit = head.unit();
  grads->log2_scale = head.log2_scale();
  grads->origin = (head.batch * call.heads + head.head) * call.queries + queries.first - call.offset;
  for (int64_t r = 0; r < queries.count; r++) {
    int64_t at = grads->origin + r * step;
    double m = gradient.m[at];
    double l = gradient.l ? gradient.l[at] : 0, u = gradient.u ? gradient.u[at] : 0;
    float score = (float)(m / unit);
    grads->m[r] = m == -INF ? INF : score;  // an empty row weighs 2^(−inf) = 0
    grads->rest[r] = m == -INF ? 0 : (float)rounded_off(m, score, unit);
    grads->row_base[r] = l + u;
    grads->base[r] = (float)(l + u);
    grads->entropy[r] = (float)(u * LN2_EXACT);
    grads->squares[r] = gradient.r ? (float)(2 * gradient.r[at]) : 0;
  }
  grads->rows = gradient.o ? gradient.o + grads->origin * grads->value_dim : nullptr;
  grads->stride = step * grads->value_dim;
  if (!extras) return;
  int64_t width = grads->value_dim + extras;
  for (int64_t r = 0; r < queries.count; r++) {
    float* to = space + r * width;
    for (int64_t d = 0; d < grads->value_dim; d++) to[d] = grads->rows[r * grads->stride + d];
    to += grads->value_dim + grads->extras.moments + grads->extras.squares;
    if (grads->extras.first) *to++ = (float)grads->column(r, grads->want->first);
    for (int64_t i = 0; i < grads->extras.groups; i++) to[i] = (float)grads->column(r, grads->want->group[i]);
  }
  grads->rows = space;
  grads->stride = width;
}

// 1 where all keys are at or before all queries, −1 where at or after, 0 where the diagonal passes between them.
static inline int side(Span queries, Span keys) {
  if (keys.first + (keys.count - 1) * keys.step <= queries.first) return 1;
  return keys.first >= queries.first + (queries.count - 1) * queries.step ? -1 : 0;
}

// Terms of position, its square and distance, as a polynomial from the panel's first key on: the terms of a position have
// one sign, so floats keep their precision, however long the sequence. `queries` are those of the tile from row `skip` on.
static inline void add_panel_terms(StateGrad* grads, Span keys, Span queries, int64_t skip, float* space) {
  const RegardWant& want = *grads->want;
  if (!grads->extras.moments) return;
  double step = (double)keys.step, first = (double)keys.first;
  int sign = side(queries, keys);
  for (int64_t r = skip; r < skip + queries.count; r++) {
    double position = want.position >= 0 ? grads->column(r, want.position) : 0;
    double square = want.square >= 0 ? grads->column(r, want.square) : 0;
    double distance = want.distance >= 0 ? sign * grads->column(r, want.distance) : 0;
    double query = (double)(grads->queries.first + r * grads->queries.step);
    float* to = space + r * grads->stride + grads->value_dim;
    grads->base[r] = (float)(grads->row_base[r] + (position + square * first) * first + distance * (query - first));
    to[0] = (float)(step * (position + 2 * square * first - distance));
    if (grads->extras.squares) to[1] = (float)(step * step * square);
  }
}

// Adds the gradient of match `i`: of keys that have the query's id.
static inline void add_matches(const StateGrad& grads, int64_t i, Span keys, Span queries, int64_t skip, float* grad) {
  const RegardWant& want = *grads.want;
  const int32_t* mine = want.match_queries + i * want.match_query_stride + grads.batch * want.match_query_batch + queries.first - grads.offset;
  const int32_t* theirs = want.match_keys + i * want.match_key_stride + grads.batch * want.match_key_batch + keys.first;
  int64_t low = want.match_low[i], high = want.match_high[i];
  for (int64_t r = 0; r < queries.count; r++) {
    int64_t away = keys.first - queries.first - r * queries.step;
    float factor = (float)grads.column(skip + r, want.match[i]);
    for (int64_t x = 0; x < keys.count; x++) {
      int64_t difference = away + x * keys.step;
      bool there = theirs[x * keys.step] == mine[r * queries.step] && low <= difference && difference <= high;
      grad[r * PANEL + x] += there ? factor : 0.0f;
    }
  }
}

// Adds what depends on query and key in a way of its own: bands, matches, and distances where the diagonal passes. `grad` and
// `queries` are those of the tile from row `skip` on.
static inline void add_near(const StateGrad& grads, Span keys, Span queries, int64_t skip, float* grad) {
  const RegardWant& want = *grads.want;
  if (!grads.gradient->c) return;
  int64_t last_key = keys.first + (keys.count - 1) * keys.step;
  int64_t last_query = queries.first + (queries.count - 1) * queries.step;
  if (want.distance >= 0 && side(queries, keys) == 0)
    for (int64_t r = 0; r < queries.count; r++) {
      float factor = (float)grads.column(skip + r, want.distance), ahead = (float)(queries.first + r * queries.step - keys.first);
      for (int64_t x = 0; x < PANEL; x++) grad[r * PANEL + x] += factor * __builtin_fabsf(ahead - (float)(x * keys.step));
    }
  for (int64_t i = 0; i < want.bands; i++) {
    int64_t low = want.band_low[i], high = want.band_high[i];
    if (keys.first - last_query > high || last_key - queries.first < low) continue;
    for (int64_t r = 0; r < queries.count; r++) {
      float factor = (float)grads.column(skip + r, want.band[i]);
      int64_t away = keys.first - queries.first - r * queries.step;
      for (int64_t x = 0; x < PANEL; x++) {
        int64_t difference = away + x * keys.step;
        grad[r * PANEL + x] += low <= difference && difference <= high ? factor : 0.0f;
      }
    }
  }
  for (int64_t i = 0; i < want.matches; i++)
    if (keys.first - last_query <= want.match_high[i] && last_key - queries.first >= want.match_low[i])
      add_matches(grads, i, keys, queries, skip, grad);
}

}  // namespace REGARD_ISA
