// The first fold for few queries and many keys (decoding): lanes are keys, and a tile of keys and values is read once
// for all heads that share it, for reading is what takes the time.
#pragma once
#include "rows.h"
#include "streams.h"

namespace REGARD_ISA {

constexpr int TILE_VECTORS = (int)TILE / LANES;
constexpr int64_t FEW = PANEL / 6;  // queries of a head up to which lanes are better filled with keys
constexpr int64_t AT_ONCE = 16;     // values that are added before the next vectors of their rows
constexpr int SUMS = 5;             // of a row in a tile: l, u, r and the two moments

REGARD_INLINE float largest(vf x) {
  float most = -INF;
  for (int lane = 0; lane < LANES; lane++) most = x[lane] > most ? x[lane] : most;
  return most;
}

// The queries of some heads that share their keys, at most PANEL of them: row = head · queries + query.
struct Few {
  int64_t heads, rows;
  Span queries;
  float *packed, *o;  // [row][padded]
  Panel lanes;        // the sums of row x in lane x
  vf* sums;           // [SUMS · rows], a tile's, and their totals
  float* totals;
};

static inline void take_few(const RegardCall& call, const RegardWant& want, Space* space, Few* few) {
  Panel& lanes = few->lanes;
  few->packed = space->take<float>(PANEL * padded(call.dim));
  few->o = space->take<float>(PANEL * padded(call.value_dim));
  few->sums = space->take<vf>(SUMS * PANEL);
  few->totals = space->take<float>(SUMS * PANEL);
  lanes.o = space->take<float>(PANEL * call.value_dim);
  lanes.m = space->take<float>(PANEL);
  lanes.best = space->take<float>(PANEL);
  lanes.least = space->take<float>(PANEL);
  lanes.l = space->take<double>(PANEL);
  lanes.u = space->take<double>(PANEL);
  lanes.r = space->take<double>(PANEL);
  lanes.c = space->take<double>(PANEL * want.columns);
  lanes.count = space->take<int64_t>(PANEL);
  lanes.best_row = space->take<int32_t>(PANEL);
  lanes.top_scores = space->take<float>(PANEL * want.top);
  lanes.top_keys = space->take<int64_t>(PANEL * want.top);
  lanes.ids = space->take<int32_t>(PANEL * want.matches);
}

static inline void start_few(const RowsTask& task, const Few& few, float* space) {
  const RegardCall& call = *task.call;
  const RegardWant& want = *task.want;
  const Panel& lanes = few.lanes;
  int64_t width = padded(call.dim), numbers = want.output ? few.rows * padded(call.value_dim) : 0;
  for (int64_t h = 0; h < few.heads; h++) {
    Rows rows = rows_of(call.query, call.type, task.head.batch, task.head.head + h, few.queries.first - call.offset,
                        task.step, task.count, call.dim, space);
    for (int64_t r = 0; r < task.count; r++)
      spread_row(rows.data + r * rows.stride, call.dim, few.packed + (h * task.count + r) * width);
  }
  for (int64_t i = 0; i < numbers; i++) few.o[i] = 0;
  for (int64_t i = 0; i < SUMS * PANEL; i++) few.sums[i] = (vf){};
  for (int64_t i = 0; i < PANEL * want.columns; i++) lanes.c[i] = 0;
  take_ids(call, want, task.head.batch, few.queries, lanes.ids);
  for (int64_t i = 0; i < few.rows * want.top; i++) { lanes.top_scores[i] = -INF; lanes.top_keys[i] = NO_KEY; }
  for (int64_t x = 0; x < PANEL; x++) {
    lanes.m[x] = lanes.best[x] = -INF;
    lanes.least[x] = INF;
    lanes.l[x] = lanes.u[x] = lanes.r[x] = 0;
    lanes.count[x] = 0;
    lanes.best_row[x] = 0;
  }
}

// A larger score of row x, the first of its value at row `at` of the residue class: earlier sums are rescaled.
static inline void raise(const RegardWant& want, int64_t wide_value, const Few& few, int64_t x, float top, int64_t at) {
  const Panel& lanes = few.lanes;
  double shift = lanes.m[x] == -INF ? 0 : ((double)lanes.m[x] - top) * lanes.log2_scale;
  double factor = lanes.m[x] == -INF ? 0 : power2(splat((float)shift))[0];
  lanes.m[x] = top;
  if (want.top == 1) {
    lanes.best[x] = top;
    lanes.best_row[x] = (int32_t)at;
  }
  lanes.u[x] = factor * (lanes.u[x] + shift * lanes.l[x]);
  lanes.l[x] *= factor;
  lanes.r[x] *= factor * factor;
  for (int64_t i = 0; i < want.columns; i++) lanes.c[i * PANEL + x] *= factor;
  for (int64_t d = 0; d < wide_value; d += LANES) {
    float* o = few.o + x * wide_value + d;
    store(o, load(o) * splat((float)factor));
  }
}

// Keeps the `top` largest scores of row x, of which `most` holds the largest of every lane.
static inline void keep_row_top(const Panel& lanes, int64_t top, int64_t x, const float* scores, vf most, Span keys) {
  if (!bits_of((most >= splat(lanes.best[x])) & (most > splat(-INF)))) return;
  for (int64_t j = 0; j < keys.count; j += LANES) {
    vf score = load(scores + j);
    uint64_t bits = bits_of((score >= splat(lanes.best[x])) & (score > splat(-INF)));
    for (; bits; bits &= bits - 1) {
      int64_t at = j + __builtin_ctzll(bits);
      insert(lanes.top_scores + x * top, lanes.top_keys + x * top, top, scores[at], keys.first + at * keys.step);
    }
    lanes.best[x] = lanes.top_scores[x * top + top - 1];
  }
}

// p = 2^(log2_scale · (score − m)) in place, and its sums, the moments about the middle of the tile.
REGARD_INLINE void exponentiate_row(float* scores, int64_t count, float m, float log2_scale, vf* sums) {
  vf l = {}, u = {}, r = {}, first = {}, second = {};
  vf at = ramp() - splat((float)(count / 2));
  for (int v = 0; v < TILE_VECTORS; v++, at += splat((float)LANES)) {
    vf x = maximum(splat(LEAST - 1.0f), (load(scores + v * LANES) - splat(m)) * splat(log2_scale));
    vf p = power2_within(x), moment = p * at;
    store(scores + v * LANES, p);
    l += p;
    u += p * x;
    r += p * p;
    first += moment;
    second += moment * at;
  }
  sums[0] = l;
  sums[1] = u;
  sums[2] = r;
  sums[3] = first;
  sums[4] = second;
}

// Σ p over the keys whose bit is set.
static inline double sum_of(const float* p, uint64_t members) {
  if (!members) return 0;
  vf total = {};
  for (int v = 0; v < TILE_VECTORS; v++) total += keep(members >> (v * LANES), load(p + v * LANES), (vf){});
  return sum(total);
}

// Adds a tile to the linear columns of row x, whose earlier sums have been rescaled already.
static inline void add_row_columns(const RegardWant& want, const Few& few, int64_t x, const float* p, Span keys,
                                   const uint64_t* groups, const uint64_t* matches) {
  double* c = few.lanes.c + x;
  const float* totals = few.totals + SUMS * x;
  int64_t query = few.queries.first + x % few.queries.count * few.queries.step;
  double center = (double)(keys.first + keys.count / 2 * keys.step), step = (double)keys.step;
  double l = totals[0], first = step * totals[3], second = step * step * totals[4], moment = first + center * l;
  if (want.position >= 0) c[want.position * PANEL] += moment;
  if (want.square >= 0) c[want.square * PANEL] += second + center * (first + moment);
  if (want.distance >= 0) {
    uint64_t after = mask_program::stretch(keys, query + 1, keys.first + keys.count * keys.step);
    uint64_t all = mask_program::below(keys.count);
    double away = (double)query * l - moment;
    if (after && after != all) {
      vf total = {}, at = splat((float)(query - keys.first)) - ramp() * splat((float)keys.step);
      for (int v = 0; v < TILE_VECTORS; v++, at -= splat((float)(LANES * keys.step))) total += load(p + v * LANES) * absolute(at);
      away = sum(total);
    }
    c[want.distance * PANEL] += after == all ? -away : away;
  }
  if (want.first >= 0) c[want.first * PANEL] += sum_of(p, mask_program::stretch(keys, 0, want.first_count));
  for (int64_t i = 0; i < want.bands; i++)
    c[want.band[i] * PANEL] += sum_of(p, mask_program::stretch(keys, query + want.band_low[i], query + want.band_high[i] + 1));
  for (int64_t i = 0; i < want.groups; i++) c[want.group[i] * PANEL] += sum_of(p, groups[i]);
  for (int64_t i = 0; i < want.matches; i++) {
    uint64_t near = mask_program::stretch(keys, query + want.match_low[i], query + want.match_high[i] + 1);
    c[want.match[i] * PANEL] += sum_of(p, near & matches[i * FEW + x % few.queries.count]);
  }
}

// Which keys of a tile belong to each group.
static inline void members_of(const RegardWant& want, int64_t batch, Span keys, uint64_t* groups) {
  for (int64_t i = 0; i < want.groups; i++) {
    const uint8_t* members = want.group_keys + i * want.group_stride + batch * want.group_batch + keys.first;
    groups[i] = 0;
    for (int64_t j = 0; j < keys.count; j++) groups[i] |= (uint64_t)(members[j * keys.step] != 0) << j;
  }
}

// Which keys of a tile have the id of each query, for every match.
static inline void matches_of(const RegardWant& want, const Few& few, int64_t batch, Span keys, uint64_t* matches) {
  alignas(64) int32_t ids[TILE];
  for (int64_t i = 0; i < want.matches; i++, matches += FEW) {
    const int32_t* from = want.match_keys + i * want.match_key_stride + batch * want.match_key_batch + keys.first;
    for (int64_t j = 0; j < TILE; j++) ids[j] = from[j < keys.count ? j * keys.step : 0];
    for (int64_t q = 0; q < few.queries.count; q++) {
      matches[q] = 0;
      for (int v = 0; v < TILE_VECTORS; v++)
        matches[q] |= bits_of(*(const vi*)(ids + v * LANES) == splat_int(few.lanes.ids[i * PANEL + q])) << (v * LANES);
      matches[q] &= mask_program::below(keys.count);
    }
  }
}

// The smallest score of row x whose key is allowed.
static inline void keep_least(const Panel& lanes, int64_t x, const float* scores, uint64_t allowed_keys) {
  vf least = splat(INF);
  for (int v = 0; v < TILE_VECTORS; v++)
    least = minimum(keep(allowed_keys >> (v * LANES), load(scores + v * LANES), splat(INF)), least);
  for (int lane = 0; lane < LANES; lane++)
    if (least[lane] < lanes.least[x]) lanes.least[x] = least[lane];
}

// Merges a tile of finished scores, whose first key is `begin` of its residue class: `scores` becomes p.
static inline void fold_few(const RowsTask& task, const Few& few, float* scores, int64_t begin, Span keys, const uint64_t* allowed_bits) {
  const RegardWant& want = *task.want;
  int64_t wide_value = want.output ? padded(task.call->value_dim) : 0;
  for (int64_t x = 0; x < few.rows; x++) {
    float* row = scores + x * TILE;
    vf most = splat(-INF);
    for (int v = 0; v < TILE_VECTORS; v++) most = maximum(most, load(row + v * LANES));
    if (want.top > 1) keep_row_top(few.lanes, want.top, x, row, most, keys);
    if (want.least) keep_least(few.lanes, x, row, allowed_bits[x]);
    if (bits_of(most > splat(few.lanes.m[x]))) {
      float top = largest(most);
      int64_t j = 0;
      while (row[j] != top) j++;
      raise(want, wide_value, few, x, top, begin + j);
    }
    exponentiate_row(row, keys.count, few.lanes.m[x] == -INF ? 0 : few.lanes.m[x], few.lanes.log2_scale, few.sums + SUMS * x);
  }
  for (int64_t i = 0; i < SUMS * few.rows; i += LANES) store(few.totals + i, sum_each(few.sums + i));
  uint64_t groups[MOST_COLUMNS], matches[MOST_COLUMNS * FEW];
  members_of(want, task.head.batch, keys, groups);
  matches_of(want, few, task.head.batch, keys, matches);
  for (int64_t x = 0; x < few.rows; x++) {
    const float* totals = few.totals + SUMS * x;
    few.lanes.l[x] += totals[0];
    few.lanes.u[x] += totals[1];
    few.lanes.r[x] += totals[2];
    if (want.columns) add_row_columns(want, few, x, scores + x * TILE, keys, groups, matches);
  }
}

// Adds values of which some are NaN or infinite: a weight of 0 does not silence those, so only allowed pairs get them.
static inline void add_careful(const Rows& values, int64_t count, const float* p, const uint64_t* allowed_bits, int64_t width,
                               const Few& few, float* clean) {
  for (int64_t j = 0; j < count; j++)
    for (int64_t d = 0; d < width; d++) {
      float value = values.data[j * values.stride + d];
      bool sound = value - value == 0;
      clean[j * width + d] = sound ? value : 0;
      for (int64_t x = 0; x < few.rows && !sound; x++)
        if (allowed_bits[x] >> j & 1) few.o[x * padded(width) + place(d, width)] += p[x * TILE + j] * value;
    }
  add_rows<8>(stream_of(clean, width, width), count, p, TILE, few.rows, few.o);
}

// Finished scores of one tile, [row][TILE], −inf past its last key; the bits of the pairs that are allowed.
template <class T>
static inline void score_few(const RowsTask& task, const Few& few, const Stream<T>& keys, Span tile, Tile kind, float* scores,
                             uint64_t* allowed_bits, float* extra) {
  for (int64_t j = 0; j < tile.count; j += LANES)
    multiply_rows<8>(few.packed, few.rows, keys.from(j), tile.count - j, scores + j, TILE);
  uint64_t there = mask_program::below(tile.count);
  for (int64_t h = 0; h < few.heads; h++) {
    Head head = task.head;
    head.head += h;
    float* head_scores = scores + h * task.count * TILE;
    uint64_t* bits = allowed_bits + h * task.count;
    if (kind == SOME) allowed(head.allows(), head.batch, head.head, tile, few.queries, false, bits);
    bool blocks = finish_scores<TILE_VECTORS>(head, tile, few.queries, kind, head_scores, bits, extra);
    for (int64_t r = 0; r < task.count; r++) bits[r] = blocks ? bits[r] & there : there;
  }
  if (tile.count == TILE) return;
  for (int64_t x = 0; x < few.rows; x++)
    for (int v = 0; v < TILE_VECTORS; v++) {
      float* at = scores + x * TILE + v * LANES;
      store(at, keep(there >> (v * LANES), load(at), splat(-INF)));
    }
}

// One pass over the keys; `careful` looks for values that are not finite.
template <class T>
static inline void pass_few(const RowsTask& task, const Few& few, bool careful, Space space) {
  const RegardCall& call = *task.call;
  const RegardWant& want = *task.want;
  float* scores = space.take<float>(PANEL * TILE);
  float* extra = space.take<float>(SCORE_SPACE);
  float* values_space = space.take<float>(careful ? TILE * call.value_dim : 0);
  float* clean = space.take<float>(careful ? TILE * call.value_dim : 0);
  uint64_t allowed_bits[PANEL];
  Span keys = keys_of(task.step, task.residue, 0, task.end);
  Head transposed = task.head;
  transposed.lanes_are_queries = true;  // the walk is along the keys
  Walk walk(transposed, few.queries, keys, task.begin, task.end);
  int64_t begin, end;
  Tile kind;
  const T* key = (const T*)call.key.data + task.head.batch * call.key.batch + task.head.kv_head * call.key.head;
  const T* value = (const T*)call.value.data + task.head.batch * call.value.batch + task.head.kv_head * call.value.head;
  while (walk.next(&begin, &end, &kind)) {
    Span tile = {keys.first + begin * keys.step, keys.step, end - begin};
    Stream<T> tile_keys = stream_of(key + tile.first * call.key.row, keys.step * call.key.row, call.dim);
    score_few(task, few, tile_keys, tile, kind, scores, allowed_bits, extra);
    for (int64_t x = 0; want.count && x < few.rows; x++) few.lanes.count[x] += __builtin_popcountll(allowed_bits[x]);
    fold_few(task, few, scores, begin, tile, allowed_bits);
    if (want.output && careful) {
      Rows rows = rows_of(call.value, call.type, task.head.batch, task.head.kv_head, tile.first, keys.step, tile.count,
                          call.value_dim, values_space);
      add_careful(rows, tile.count, scores, allowed_bits, call.value_dim, few, clean);
    } else if (want.output) {
      Stream<T> values = stream_of(value + tile.first * call.value.row, keys.step * call.value.row, call.value_dim);
      for (int64_t j = 0; j < tile.count; j += AT_ONCE)
        add_rows<8>(values.from(j), tile.count - j < AT_ONCE ? tile.count - j : AT_ONCE, scores + j, TILE, few.rows, few.o);
    }
  }
}

// Writes the rows of each head to memory, through a panel whose lanes are its queries.
static inline void finish_few(const RowsTask& task, const Few& few) {
  int64_t width = task.call->value_dim, top = task.want->top;
  for (int64_t h = 0; h < few.heads; h++) {
    RowsTask head_task = task;
    head_task.head.head += h;
    int64_t x = h * task.count;
    Panel lanes = few.lanes;
    lanes.queries = few.queries;
    lanes.m += x;
    lanes.best += x;
    lanes.least += x;
    lanes.l += x;
    lanes.u += x;
    lanes.r += x;
    lanes.c += x;
    lanes.count += x;
    lanes.best_row += x;
    lanes.top_scores += x * top;
    lanes.top_keys += x * top;
    if (task.want->output) {
      int64_t aligned = width / LANES * LANES, row = padded(width);
      pack_panel(few.o + x * row, row, task.count, aligned, 1, lanes.o);
      pack_panel(few.o + x * row + place(aligned, width), row, task.count, width - aligned, 1, lanes.o + aligned * PANEL);
    }
    finish_panel(head_task, lanes);
  }
}

static inline int64_t few_space(const RegardCall& call, const RegardWant& want) {
  Few few = {};
  Space space = {nullptr, 0};
  take_few(call, want, &space, &few);
  space.take<float>(PANEL * call.dim);
  space.take<float>(PANEL * TILE + SCORE_SPACE + 2 * TILE * call.value_dim);
  return space.used + 1024;
}

template <class T>
static inline void run_few_of(const RowsTask& task, int64_t heads, void* scratch) {
  Space space = {(char*)scratch, 0};
  Few few = {};
  few.heads = heads;
  few.rows = heads * task.count;
  few.queries = queries_of(*task.call, task.step, task.residue, task.first, task.count);
  few.lanes.log2_scale = task.head.log2_scale();
  take_few(*task.call, *task.want, &space, &few);
  float* queries_space = space.take<float>(PANEL * task.call->dim);
  for (bool careful = false;; careful = true) {
    start_few(task, few, queries_space);
    pass_few<T>(task, few, careful, space);
    vf bad = {};
    for (int64_t i = 0; task.want->output && i < few.rows * padded(task.call->value_dim); i += LANES) {
      vf o = load(few.o + i);
      bad += o - o;
    }
    if (careful || sum(bad) == 0) break;
  }
  finish_few(task, few);
}

// A task: the queries of one residue class in `heads` heads that share their keys, at most PANEL of them together, and
// one stretch of keys.
static inline void run_few(const RowsTask& task, int64_t heads, void* scratch) {
  FlushDenormals quiet;
  if (task.call->type == REGARD_BFLOAT16) run_few_of<Bfloat16>(task, heads, scratch);
  else if (task.call->type == REGARD_FLOAT16) run_few_of<Float16>(task, heads, scratch);
  else run_few_of<float>(task, heads, scratch);
}

}  // namespace REGARD_ISA
