// The scores of one tile: product, softcap, bias, mask. Products of numbers that small integers are stay exact, and so do
// ties: what a score is multiplied with on its way to a power of two is left to the difference of two scores.
// Works both ways round: lanes are queries and rows keys (first fold), or lanes are keys and rows queries.
#pragma once
#include "load.h"
#include "mask.h"
#include "runs.h"

namespace REGARD_ISA {

constexpr double LEAST_UNIT = 1e-30;  // below, differences of scores pass what a float holds

// One head of a call under one of its masks, and which side lies along the lanes.
struct Head {
  const RegardCall* call;
  const RegardMask* mask;
  int64_t batch, head, kv_head;
  bool lanes_are_queries;

  Mask allows() const { return {mask->code, mask->tables}; }
  // Whether the product is the score, in units of `scale`. Not where scaling could pass what a float holds, or where a
  // scale of 0 makes all scores equal.
  bool bare() const {
    return call->softcap == 0 && call->bias_kind == REGARD_NO_BIAS && call->scale >= LEAST_UNIT && call->scale <= 1;
  }
  // Nats in a unit of the scores.
  double unit() const { return bare() ? call->scale : 1; }
  // From a difference of scores to an exponent of two.
  float log2_scale() const { return (float)(unit() / LN2_EXACT); }
};

// What rounding took from m, in nats, as an exponent of two. Nothing where m is a score of the first fold times its unit,
// but for that product's own rounding.
static inline double rounded_off(double m, float score, double unit) {
  double left = m - score * unit;
  return __builtin_fabs(left) > 0x1p-50 * __builtin_fabs(m) && left - left == 0 ? left / LN2_EXACT : 0;
}

static inline Head head_of(const RegardCall* call, const RegardMask* mask, int64_t batch, int64_t head, bool lanes_are_queries) {
  return {call, mask, batch, head, head / (call->heads / call->kv_heads), lanes_are_queries};
}

// Positions of the tokens of one residue class, by their index in it: queries start at call->offset, keys at 0.
static inline Span queries_of(const RegardCall& call, int64_t step, int64_t residue, int64_t first, int64_t count) {
  int64_t lead = ((residue - call.offset) % step + step) % step;
  return {call.offset + lead + first * step, step, count};
}
static inline int64_t queries_in(const RegardCall& call, int64_t step, int64_t residue) {
  int64_t lead = ((residue - call.offset) % step + step) % step;
  return lead >= call.queries ? 0 : (call.queries - lead + step - 1) / step;
}
static inline Span keys_of(int64_t step, int64_t residue, int64_t first, int64_t count) {
  return {residue + first * step, step, count};
}
static inline int64_t keys_in(const RegardCall& call, int64_t step, int64_t residue) {
  return residue >= call.keys ? 0 : (call.keys - residue + step - 1) / step;
}

// A bias that depends on k − q alone (ALiBi, relative): one number for each difference in the tile.
static inline double by_distance(const Head& head, int64_t distance) {
  const RegardCall& call = *head.call;
  if (call.bias_kind == REGARD_ALIBI) return -(double)call.bias[head.head] * (double)(distance < 0 ? -distance : distance);
  int64_t reach = call.bias_reach;
  int64_t held = distance < -reach ? -reach : distance > reach ? reach : distance;
  return call.bias[head.head * call.bias_stride[1] + held + reach];
}

// differences[lane − row + rows.count − 1] = bias.
template <int VECTORS>
static inline void fill_distances(const Head& head, Span lanes, Span rows, float* differences) {
  int64_t sign = head.lanes_are_queries ? -1 : 1;
  for (int64_t x = 0; x < VECTORS * LANES + rows.count - 1; x++) {
    int64_t lane_minus_row = lanes.first - rows.first + lanes.step * (x - rows.count + 1);
    differences[x] = (float)by_distance(head, sign * lane_minus_row);
  }
}

// biases[row][lane] of a dense bias.
template <int VECTORS>
static inline void fill_dense(const Head& head, Span lanes, Span rows, float* biases) {
  const RegardCall& call = *head.call;
  const float* origin = call.bias + head.batch * call.bias_stride[0] + head.head * call.bias_stride[1];
  Span queries = head.lanes_are_queries ? lanes : rows, keys = head.lanes_are_queries ? rows : lanes;
  origin += (queries.first - call.offset) * call.bias_stride[2] + keys.first * call.bias_stride[3];
  int64_t query = queries.step * call.bias_stride[2], key = keys.step * call.bias_stride[3];
  int64_t lane = head.lanes_are_queries ? query : key, row = head.lanes_are_queries ? key : query;
  for (int64_t r = 0; r < rows.count; r++)
    for (int64_t l = 0; l < lanes.count; l++) biases[r * VECTORS * LANES + l] = origin[l * lane + r * row];
  for (int64_t r = 0; r < rows.count; r++)
    for (int64_t l = lanes.count; l < VECTORS * LANES; l++) biases[r * VECTORS * LANES + l] = 0;
}

// The pairs of a partial tile that the mask allows, one word a row; cuts rows off both ends that no lane may see.
// Returns false where nothing is left.
static inline bool allowed_rows(const Head& head, Span lanes, Span* rows, uint64_t* bits) {
  allowed(head.allows(), head.batch, head.head, lanes, *rows, head.lanes_are_queries, bits);
  int64_t begin = 0, end = rows->count;
  while (begin < end && !bits[begin]) begin++;
  while (begin < end && !bits[end - 1]) end--;
  for (int64_t r = begin; begin > 0 && r < end; r++) bits[r - begin] = bits[r];
  *rows = {rows->first + begin * rows->step, rows->step, end - begin};
  return begin < end;
}

// Turns the product of a tile into scores, −inf where blocked. `bits` holds what the mask allows where kind is SOME.
// Returns whether some pair may be blocked: then `bits` is right, also where the bias blocks.
// A row of scores is VECTORS vectors long.
template <int VECTORS = PANEL_VECTORS>
static inline bool finish_scores(const Head& head, Span lanes, Span rows, Tile kind, float* scores, uint64_t* bits, float* space) {
  constexpr int64_t WIDTH = VECTORS * LANES;
  const RegardCall& call = *head.call;
  vf scale = splat(1);
  if (call.softcap != 0) {
    vf inverse = splat((float)(call.scale / call.softcap)), cap = splat((float)call.softcap);
    for (int64_t x = 0; x < rows.count * WIDTH; x += LANES)
      store(scores + x, cap * hyperbolic_tangent(load(scores + x) * inverse));
  } else if (call.bias_kind != REGARD_NO_BIAS) {
    scale = splat((float)call.scale);
  } else if (!head.bare()) {
    for (int64_t x = 0; x < rows.count * WIDTH; x += LANES) store(scores + x, load(scores + x) * splat((float)call.scale));
  }
  if (call.bias_kind == REGARD_DENSE) fill_dense<VECTORS>(head, lanes, rows, space);
  else if (call.bias_kind != REGARD_NO_BIAS) fill_distances<VECTORS>(head, lanes, rows, space);
  else if (kind == ALL) return false;
  bool blocks = kind == SOME || call.bias_blocks;
  for (int64_t r = 0; r < rows.count; r++) {
    uint64_t mine = kind == SOME ? bits[r] : ~0ull, seen = 0;
    for (int c = 0; c < VECTORS; c++) {
      float* at = scores + r * WIDTH + c * LANES;
      vf score = load(at);
      if (call.bias_kind != REGARD_NO_BIAS) {
        const float* from = space + (call.bias_kind == REGARD_DENSE ? r * WIDTH : rows.count - 1 - r) + c * LANES;
        vf bias = load_unaligned(from);
        score = select(bias == splat(-INF), splat(-INF), score * scale + bias);  // whatever the score: NaN − inf is NaN
        if (call.bias_blocks) seen |= bits_of(bias != splat(-INF)) << (c * LANES);
      }
      if (kind == SOME) score = keep(mine >> (c * LANES), score, splat(-INF));
      store(at, score);
    }
    if (blocks) bits[r] = call.bias_blocks ? mine & seen : mine;
  }
  return blocks;
}

constexpr int64_t SCORE_SPACE = TILE * PANEL + PANEL;  // floats that `finish_scores` may write to

// The stretches of rows that a panel or block must visit, found by halving: an empty stretch of any length costs one
// question. Yields tiles of at most TILE rows, in order.
struct Walk {
  Mask mask;
  int64_t batch, head;
  Span lanes;        // positions along the lanes
  Span all;          // positions of all rows
  bool lanes_are_queries;
  int64_t from[64], to[64];
  int depth = 0;
  int64_t full_until = 0;  // rows up to here are known to be allowed in full

  Walk(const Head& h, Span lanes_, Span rows_, int64_t begin, int64_t end)
      : mask(h.allows()), batch(h.batch), head(h.head), lanes(lanes_), all(rows_), lanes_are_queries(h.lanes_are_queries) {
    if (begin < end) { from[0] = begin; to[0] = end; depth = 1; }
  }
  Tile ask(int64_t begin, int64_t end) const {
    if (!mask.code) return ALL;
    Span rows = {all.first + begin * all.step, all.step, end - begin};
    return lanes_are_queries ? classify(mask, batch, head, lanes, rows) : classify(mask, batch, head, rows, lanes);
  }
  // The next tile [begin, end) and what holds on it; false at the end.
  bool next(int64_t* begin, int64_t* end, Tile* kind) {
    while (depth > 0) {
      int64_t a = from[depth - 1], b = to[depth - 1];
      Tile answer = b <= full_until ? ALL : ask(a, b);
      if (answer == NONE) { depth--; continue; }
      if (b - a <= TILE) { depth--; *begin = a; *end = b; *kind = answer; return true; }
      if (answer == ALL) {
        full_until = b;
        from[depth - 1] = a + TILE;
        *begin = a; *end = a + TILE; *kind = ALL;
        return true;
      }
      int64_t middle = a + ((b - a) / TILE + 1) / 2 * TILE;
      if (middle >= b) middle = a + (b - a - 1) / TILE * TILE;
      to[depth - 1] = b; from[depth - 1] = middle;
      from[depth] = a; to[depth] = middle;
      depth++;
    }
    return false;
  }
};

}  // namespace REGARD_ISA
