// How one tile of scores is merged into the running state of a panel. Lanes are queries, so every sum of a row is a lane.
// Sums within a tile are float32, sums over tiles float64: they are one number a row.
#pragma once
#include "scores.h"
#include "state.h"

namespace REGARD_ISA {

enum { ENTROPY = 1, SQUARES = 2, MOMENTS = 4 };
constexpr int32_t NO_ID = -1;

// What a tile adds to each lane.
struct TileSums {
  Lanes l, u, r, first, second;  // first, second: Σ p·(row − center) and its square
};

// The running state of one panel.
struct Panel {
  Span queries;
  float log2_scale;        // from a difference of scores to an exponent of two
  float *packed, *o;  // [dim][PANEL], [value_dim][PANEL]
  float *m, *best, *least;  // least: the smallest score of an allowed key
  double *l, *u, *r, *c;  // c: [columns][PANEL]
  int64_t* count;
  int32_t* best_row;  // row of the residue class with the largest score
  float* top_scores;  // [PANEL][top]
  int64_t* top_keys;
  int32_t* ids;  // [matches][PANEL]: what the queries' keys must be called, −1 past the last query
};

// p = 2^(log2_scale · (score − m)) in place, 0 in the rows that a vector does not need, and its sums. Summing the running sums of p
// weighs row j by count − j without a product, and summing those again by (count − j)(count − j + 1)/2: the moments cost
// one addition each. Not inlined: among others the compiler would keep sums on the stack.
template <int WANT>
static __attribute__((noinline)) void exponentiate(float* scores, int64_t count, const Runs& runs, const float* m, float log2_scale,
                                                   TileSums* sums) {
  float half = (float)(count - count / 2);
  for (int c = 0; c < PANEL_VECTORS; c++) {  // one vector at a time: five sums of three would not fit the registers
    vf largest = load(m + c * LANES), l = {}, u = {}, r = {}, once = {}, twice = {};
    float* column = scores + c * LANES;
    int64_t from = runs.from[c], to = runs.to[c];
    for (int64_t j = 0; j < from; j++) store(column + j * PANEL, (vf){});
    for (int64_t j = from; j < to; j++) {
      vf x = maximum(splat(LEAST - 1.0f), (load(column + j * PANEL) - largest) * splat(log2_scale));
      vf p = power2_within(x);
      store(column + j * PANEL, p);
      l += p;
      if (WANT & ENTROPY) u += p * x;
      if (WANT & SQUARES) r += p * p;
      if (WANT & MOMENTS) {
        once += l;
        twice += once;
      }
    }
    for (int64_t j = to; j < count; j++) store(column + j * PANEL, (vf){});
    store(sums->l + c * LANES, l);
    if (WANT & ENTROPY) store(sums->u + c * LANES, u);
    if (WANT & SQUARES) store(sums->r + c * LANES, r);
    if (WANT & MOMENTS) {  // with i = count − j: once = Σ p·i, twice = Σ p·i(i + 1)/2; wanted about i = half
      float left = (float)(count - to);  // rows after the last one summed, in which l stays what it is
      twice += splat(left) * once + splat(left * (left + 1) / 2) * l;
      once += splat(left) * l;
      vf square = splat(2.0f) * twice - once;
      store(sums->first + c * LANES, splat(half) * l - once);
      store(sums->second + c * LANES, square - splat(2 * half) * once + splat(half * half) * l);
    }
  }
}

static inline void exponentiate(int want, float* scores, int64_t count, const Runs& runs, const float* m, float log2_scale,
                                TileSums* sums) {
  switch (want) {
    case 0: return exponentiate<0>(scores, count, runs, m, log2_scale, sums);
    case 1: return exponentiate<1>(scores, count, runs, m, log2_scale, sums);
    case 2: return exponentiate<2>(scores, count, runs, m, log2_scale, sums);
    case 3: return exponentiate<3>(scores, count, runs, m, log2_scale, sums);
    case 4: return exponentiate<4>(scores, count, runs, m, log2_scale, sums);
    case 5: return exponentiate<5>(scores, count, runs, m, log2_scale, sums);
    case 6: return exponentiate<6>(scores, count, runs, m, log2_scale, sums);
    default: return exponentiate<7>(scores, count, runs, m, log2_scale, sums);
  }
}

// Whether the smallest score is looked for, and among which: all of a tile, or those whose bit is set.
enum Least { NO_LEAST, LEAST_OF_ALL, LEAST_OF_ALLOWED };

// The largest score of each lane in a tile, and where WHERE the first row that has it; `least` gets the smallest one that
// is allowed.
template <bool WHERE, Least SMALL>
static inline void extremes_of(const float* scores, const Runs& runs, const uint64_t* bits, float* top, float* where, float* least) {
  vf largest[PANEL_VECTORS], place[PANEL_VECTORS], smallest[PANEL_VECTORS];
  auto see = [&](int64_t j, int c) __attribute__((always_inline)) {
    vf score = load(scores + j * PANEL + c * LANES);
    if (WHERE) place[c] = select(score > largest[c], splat((float)j), place[c]);
    largest[c] = maximum(largest[c], score);
    if (SMALL == LEAST_OF_ALL) smallest[c] = minimum(score, smallest[c]);
    if (SMALL == LEAST_OF_ALLOWED) smallest[c] = minimum(keep(bits[j] >> (c * LANES), score, splat(INF)), smallest[c]);
  };
  REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) {
    largest[c] = splat(-INF);
    place[c] = (vf){};
    smallest[c] = SMALL == NO_LEAST ? (vf){} : load(least + c * LANES);
  }
  if (runs.full())  // side by side, as each maximum waits for the one before it
    for (int64_t j = runs.run[0].begin; j < runs.run[0].end; j++) {
      REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) see(j, c);
    }
  else
    REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++)
      for (int64_t j = runs.from[c]; j < runs.to[c]; j++) see(j, c);
  REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) {
    store(top + c * LANES, largest[c]);
    if (WHERE) store(where + c * LANES, place[c]);
    if (SMALL != NO_LEAST) store(least + c * LANES, smallest[c]);
  }
}

template <bool WHERE>
static inline void extremes_of(Least small, const float* scores, const Runs& runs, const uint64_t* bits, float* top, float* where,
                               float* least) {
  switch (small) {
    case NO_LEAST: return extremes_of<WHERE, NO_LEAST>(scores, runs, bits, top, where, least);
    case LEAST_OF_ALL: return extremes_of<WHERE, LEAST_OF_ALL>(scores, runs, bits, top, where, least);
    default: return extremes_of<WHERE, LEAST_OF_ALLOWED>(scores, runs, bits, top, where, least);
  }
}

// Keeps the largest score of each lane and the first row that has it; tiles come in the order of their rows.
static inline void keep_best(const Panel& panel, int64_t begin, const float* top, const float* where) {
  for (int c = 0; c < PANEL_VECTORS; c++) {
    vf score = load(top + c * LANES), best = load(panel.best + c * LANES);
    vi better = score > best, at = __builtin_convertvector(load(where + c * LANES), vi) + splat_int((int32_t)begin);
    vi* row = (vi*)(panel.best_row + c * LANES);
    store(panel.best + c * LANES, select(better, score, best));
    *row = better ? at : *row;
  }
}

// Keeps the `top` largest scores of each lane.
static inline void keep_top(const Panel& panel, const float* scores, Span keys, int64_t top) {
  for (int64_t j = 0; j < keys.count; j++)
    for (int c = 0; c < PANEL_VECTORS; c++) {
      vf score = load(scores + j * PANEL + c * LANES), least = load(panel.best + c * LANES);
      uint64_t bits = bits_of((score >= least) & (score > splat(-INF)));
      for (; bits; bits &= bits - 1) {
        int64_t lane = c * LANES + __builtin_ctzll(bits);
        insert(panel.top_scores + lane * top, panel.top_keys + lane * top, top, scores[j * PANEL + lane], keys.first + j * keys.step);
        panel.best[lane] = panel.top_scores[lane * top + top - 1];
      }
    }
}

// c[lane] += Σ p over those rows of a tile that `member` picks for all lanes.
template <class Member>
static inline void add_members(const float* p, int64_t count, double* c, Member member) {
  Lanes total = {};
  for (int64_t j = 0; j < count; j++)
    if (member(j))
      for (int64_t x = 0; x < PANEL; x++) total[x] += p[j * PANEL + x];
  for (int64_t x = 0; x < PANEL; x++) c[x] += total[x];
}

// c[lane] += Σ p over the keys with low ≤ k − q ≤ high.
static inline void add_band(const float* p, Span queries, Span keys, int64_t low, int64_t high, double* c) {
  int64_t farthest = queries.first + (queries.count - 1) * queries.step;
  int64_t begin = queries.first + low - keys.first, end = farthest + high - keys.first;  // in steps of one position
  if (end < 0 || begin > (keys.count - 1) * keys.step) return;
  if (low == high && keys.step == 1 && queries.step == 1) {  // one key for each query
    for (int64_t x = 0, j = begin; x < queries.count; x++, j++)
      if (j >= 0 && j < keys.count) c[x] += p[j * PANEL + x];
    return;
  }
  begin = begin <= 0 ? 0 : (begin + keys.step - 1) / keys.step;
  end = end / keys.step + 1 < keys.count ? end / keys.step + 1 : keys.count;
  vf stride = splat((float)queries.step), least = splat((float)low), most = splat((float)high);
  for (int v = 0; v < PANEL_VECTORS; v++) {
    vf total = {}, lane = (ramp() + splat((float)(v * LANES))) * stride;
    for (int64_t j = begin; j < end; j++) {
      vf away = splat((float)(keys.first - queries.first + j * keys.step)) - lane;
      total += select((away >= least) & (away <= most), load(p + j * PANEL + v * LANES), (vf){});
    }
    for (int x = 0; x < LANES; x++) c[v * LANES + x] += total[x];
  }
}

// c[lane] += Σ p·|q − k|; all vectors of a row at once, as each sum waits for itself.
static inline void add_distance(const float* p, Span queries, Span keys, double* c) {
  vf total[PANEL_VECTORS], lane[PANEL_VECTORS];
  REGARD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) {
    total[v] = (vf){};
    lane[v] = (ramp() + splat((float)(v * LANES))) * splat((float)queries.step);
  }
  for (int64_t j = 0; j < keys.count; j++) {
    vf first = splat((float)(queries.first - keys.first - j * keys.step));
    REGARD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) total[v] += load(p + j * PANEL + v * LANES) * absolute(first + lane[v]);
  }
  for (int v = 0; v < PANEL_VECTORS; v++)
    for (int x = 0; x < LANES; x++) c[v * LANES + x] += total[v][x];
}

// The ids of a panel's queries for every match.
static inline void take_ids(const RegardCall& call, const RegardWant& want, int64_t batch, Span queries, int32_t* ids) {
  for (int64_t i = 0; i < want.matches; i++, ids += PANEL) {
    const int32_t* from = want.match_queries + i * want.match_query_stride + batch * want.match_query_batch + queries.first - call.offset;
    for (int64_t x = 0; x < PANEL; x++) ids[x] = x < queries.count ? from[x * queries.step] : NO_ID;
  }
}

// c[lane] += Σ p over the rows [begin, end) whose id is the lane's; where BAND those with low ≤ k − q ≤ high, which count
// from the difference of the first key and the first query.
template <bool BAND>
static inline void add_match(const float* p, int64_t begin, int64_t end, const int32_t* query_ids, const int32_t* key_ids,
                             int64_t step, int32_t low, int32_t high, double* c) {
  vf total[PANEL_VECTORS];
  vi mine[PANEL_VECTORS], place[PANEL_VECTORS];
  for (int v = 0; v < PANEL_VECTORS; v++) {
    total[v] = (vf){};
    mine[v] = *(const vi*)(query_ids + v * LANES);
    for (int lane = 0; lane < LANES; lane++) place[v][lane] = (int32_t)((v * LANES + lane) * step);
  }
  for (int64_t j = begin; j < end; j++) {
    vi id = splat_int(key_ids[j * step]), at = splat_int((int32_t)(j * step));
    REGARD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) {
      vi same = id == mine[v];
      if (BAND) same &= (at - place[v] >= splat_int(low)) & (at - place[v] <= splat_int(high));
      total[v] += select(same, load(p + j * PANEL + v * LANES), (vf){});
    }
  }
  for (int v = 0; v < PANEL_VECTORS; v++)
    for (int x = 0; x < LANES; x++) c[v * LANES + x] += total[v][x];
}

static inline void add_match(const float* p, Span queries, Span keys, const int32_t* query_ids, const int32_t* key_ids,
                             int64_t low, int64_t high, double* c) {
  int64_t farthest = queries.first + (queries.count - 1) * queries.step, last = keys.first + (keys.count - 1) * keys.step;
  int64_t lowest = keys.first - farthest, highest = last - queries.first;  // of the differences in this tile
  if (high < lowest || low > highest) return;
  const int32_t* from = key_ids + keys.first;
  if (low <= lowest && highest <= high) return add_match<false>(p, 0, keys.count, query_ids, from, keys.step, 0, 0, c);
  low = low < lowest ? lowest : low;
  high = high > highest ? highest : high;
  int64_t begin = mask_program::index_from(keys, queries.first + low), end = mask_program::index_from(keys, farthest + high + 1);
  int64_t between = keys.first - queries.first;
  add_match<true>(p, begin < 0 ? 0 : begin, end < keys.count ? end : keys.count, query_ids, from, keys.step,
                  (int32_t)(low - between), (int32_t)(high - between), c);
}

// Adds a tile to the linear columns, whose earlier sums have been rescaled already.
static inline void add_columns(const RegardWant& want, int64_t batch, const Panel& panel, const float* p, Span keys, const TileSums& sums) {
  int64_t nearest = panel.queries.first, farthest = nearest + (panel.queries.count - 1) * panel.queries.step;
  int64_t last = keys.first + (keys.count - 1) * keys.step;
  if (want.position >= 0 || want.square >= 0 || want.distance >= 0) {
    alignas(64) double unwanted[PANEL] = {};
    double* position = want.position < 0 ? unwanted : panel.c + want.position * PANEL;
    double* square = want.square < 0 ? unwanted : panel.c + want.square * PANEL;
    double* distance = want.distance < 0 ? unwanted : panel.c + want.distance * PANEL;
    bool clear = last <= nearest || keys.first >= farthest;  // all keys on one side of all queries
    double sign = !clear ? 0 : last <= nearest ? 1 : -1, stride = (double)panel.queries.step, step = (double)keys.step;
    vd center = splat_double((double)(keys.first + keys.count / 2 * keys.step));
    for (int x = 0; x < PANEL; x += DOUBLES) {
      vd l = widen(sums.l + x), first = step * widen(sums.first + x), second = step * step * widen(sums.second + x);
      vd moment = first + center * l, query = splat_double((double)nearest + x * stride) + stride * double_ramp();
      store(position + x, load(position + x) + moment);
      store(square + x, load(square + x) + (second + center * (first + moment)));
      store(distance + x, load(distance + x) + sign * (query * l - moment));
    }
    if (!clear && want.distance >= 0) add_distance(p, panel.queries, keys, distance);
  }
  if (want.first >= 0 && keys.first < want.first_count)
    add_members(p, keys.count, panel.c + want.first * PANEL,
                [&](int64_t j) { return keys.first + j * keys.step < want.first_count; });
  for (int64_t i = 0; i < want.bands; i++)
    add_band(p, panel.queries, keys, want.band_low[i], want.band_high[i], panel.c + want.band[i] * PANEL);
  for (int64_t i = 0; i < want.groups; i++) {
    const uint8_t* members = want.group_keys + i * want.group_stride + batch * want.group_batch;
    add_members(p, keys.count, panel.c + want.group[i] * PANEL,
                [&](int64_t j) { return members[keys.first + j * keys.step] != 0; });
  }
  for (int64_t i = 0; i < want.matches; i++)
    add_match(p, panel.queries, keys, panel.ids + i * PANEL, want.match_keys + i * want.match_key_stride + batch * want.match_key_batch,
              want.match_low[i], want.match_high[i], panel.c + want.match[i] * PANEL);
}

// Counts the allowed keys of each lane.
static inline void add_count(const Panel& panel, const uint64_t* bits, int64_t rows, const Runs& runs, bool blocks) {
  if (!blocks) {
    for (int x = 0; x < PANEL; x++) panel.count[x] += rows;
    return;
  }
  for (int c = 0; c < PANEL_VECTORS; c++) {
    vf total = {};
    for (int64_t j = runs.from[c]; j < runs.to[c]; j++) total += keep(bits[j] >> (c * LANES), splat(1.0f), (vf){});
    for (int lane = 0; lane < LANES; lane++) panel.count[c * LANES + lane] += (int64_t)total[lane];
  }
}

// Merges a tile of finished scores, whose first row is `begin`, into the panel: `scores` becomes p, `factor` what earlier sums were multiplied with.
// `bits` is null where every pair is allowed.
static inline void fold_tile(const RegardWant& want, int64_t batch, const Panel& panel, float* scores, int64_t begin, Span keys,
                             const Runs& runs, const uint64_t* bits, float* factor) {
  int flags = (want.entropy ? ENTROPY : 0) | (want.squares ? SQUARES : 0) |
              (want.position >= 0 || want.square >= 0 || want.distance >= 0 ? MOMENTS : 0);
  Lanes top, where, held, shift;
  Least small = !want.least ? NO_LEAST : bits ? LEAST_OF_ALLOWED : LEAST_OF_ALL;
  if (want.top == 1) {
    extremes_of<true>(small, scores, runs, bits, top, where, panel.least);
    keep_best(panel, begin, top, where);
  } else {
    extremes_of<false>(small, scores, runs, bits, top, where, panel.least);
    if (want.top > 1) keep_top(panel, scores, keys, want.top);
  }
  bool same = true;
  for (int c = 0; c < PANEL_VECTORS; c++) {
    vf old = load(panel.m + c * LANES), m = maximum(old, load(top + c * LANES));
    vf safe = select(m == splat(-INF), (vf){}, m);  // a row that is still empty: −inf − (−inf) never happens
    vf change = (old - safe) * splat(panel.log2_scale);
    store(panel.m + c * LANES, m);
    store(held + c * LANES, safe);
    store(factor + c * LANES, power2(change));
    store(shift + c * LANES, maximum(splat(-1e30f), change));
    same = same && !bits_of(change != (vf){});
  }
  TileSums sums;
  exponentiate(flags, scores, keys.count, runs, held, panel.log2_scale, &sums);
  for (int x = 0; x < PANEL; x += DOUBLES) {
    vd alpha = widen(factor + x), l = load(panel.l + x);
    if (want.entropy) store(panel.u + x, alpha * (load(panel.u + x) + widen(shift + x) * l) + widen(sums.u + x));
    store(panel.l + x, alpha * l + widen(sums.l + x));
    if (want.squares) store(panel.r + x, alpha * alpha * load(panel.r + x) + widen(sums.r + x));
  }
  for (int64_t i = 0; !same && i < want.columns; i++)
    for (int x = 0; x < PANEL; x += DOUBLES) store(panel.c + i * PANEL + x, load(panel.c + i * PANEL + x) * widen(factor + x));
  if (want.columns) add_columns(want, batch, panel, scores, keys, sums);
}

}  // namespace REGARD_ISA
