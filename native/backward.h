// The backward pass of one block of keys: lanes are keys, rows queries. The scores are computed again, and five products
// a tile give all gradients; those of key and value stay in the block, that of the query is added to memory.
#pragma once
#include "again.h"
#include "bias_gradient.h"
#include "state_grad.h"
#include "transposed.h"

namespace REGARD_ISA {

constexpr int64_t VJP_PANELS = 4;  // panels in a block: a tile of queries is read once for all of them

// A block of keys of one residue class and one head.
struct VjpTask {
  const RegardCall* call;
  const RegardWant* want;
  const RegardGradient* gradient;
  const RegardMask* mask;
  int64_t batch, kv_head;
  int64_t step, residue, first, count;
  float* query;  // where the query's gradient is added, and the bias's
  double* bias;
};

// One panel of keys.
struct VjpPanel {
  Span keys;
  float *key, *value;      // packed: [dim][PANEL], [value_dim + extras][PANEL]
  float* rows;             // keys · scale, NaN and inf cleaned to 0, filled up to whole vectors
  float *d_key, *d_value;  // gradients: [dim][PANEL], [value_dim][PANEL]
};

// A tile of queries, and memory for what is made of it.
struct QueryTile {
  Again again;
  Rows clean_query, output, clean_output;         // output: the gradient of o
  bool broken;                                    // some of `output` is not finite
  float *query_space, *clean_space, *grad_space, *clean_output_space, *extra;
  float *p, *grad, *cap;  // [TILE][PANEL], with room for a last block of TRANSPOSED_ROWS rows
};

static inline int64_t round_up_to_lanes(int64_t width) { return (width + LANES - 1) / LANES * LANES; }

static inline void take_tile(const VjpTask& task, Space* space, VjpPanel* panels, QueryTile* tile) {
  const RegardCall& call = *task.call;
  int64_t width = call.value_dim + extras_of(*task.want, *task.gradient).count();
  for (int64_t p = 0; p < VJP_PANELS; p++) {
    panels[p].key = space->take<float>(call.dim * PANEL);
    panels[p].value = space->take<float>(width * PANEL);
    panels[p].rows = space->take<float>(round_up_to_lanes(call.dim) * PANEL);
    panels[p].d_key = space->take<float>(call.dim * PANEL);
    panels[p].d_value = space->take<float>(call.value_dim * PANEL);
  }
  take_again(call, space, &tile->again);
  tile->query_space = space->take<float>(TILE * call.dim);
  tile->clean_space = space->take<float>(TILE * call.dim);
  tile->grad_space = space->take<float>(TILE * width);
  tile->clean_output_space = space->take<float>(TILE * call.value_dim);
  tile->extra = space->take<float>(SCORE_SPACE);
  tile->p = space->take<float>((TILE + TRANSPOSED_ROWS) * PANEL);
  tile->grad = space->take<float>((TILE + TRANSPOSED_ROWS) * PANEL);
  tile->cap = space->take<float>(call.softcap != 0 ? TILE * PANEL : 0);
}

static inline bool finite(const Rows& rows, int64_t count, int64_t width) {
  int32_t bad = 0;
  for (int64_t r = 0; r < count; r++)
    for (int64_t d = 0; d < width; d++)
      bad |= (__builtin_bit_cast(int32_t, rows.data[r * rows.stride + d]) & 0x7f800000) == 0x7f800000;
  return !bad;
}

// The rows themselves where they are finite, else a clean copy.
static inline Rows cleaned(const Rows& rows, int64_t count, int64_t width, float* space) {
  if (finite(rows, count, width)) return rows;
  clean(rows, count, width, space);
  return {space, width};
}

static inline void start_vjp_panel(const VjpTask& task, int64_t first, int64_t count, VjpPanel* panel, float* space) {
  const RegardCall& call = *task.call;
  Head head = head_of(&call, task.mask, task.batch, task.kv_head * (call.heads / call.kv_heads), false);
  panel->keys = keys_of(task.step, task.residue, first, count);
  pack_keys(head, panel->keys, panel->key, space);
  Rows key = rows_of(call.key, call.type, task.batch, task.kv_head, panel->keys.first, task.step, count, call.dim, space);
  int64_t width = round_up_to_lanes(call.dim);
  for (int64_t j = 0; j < count; j++)
    for (int64_t d = 0; d < width; d++) {
      float x = d < call.dim ? key.data[j * key.stride + d] * (float)call.scale : 0.0f;
      panel->rows[j * width + d] = x - x == 0 ? x : 0;
    }
  if (task.gradient->o) {
    Rows value = rows_of(call.value, call.type, task.batch, task.kv_head, panel->keys.first, task.step, count, call.value_dim, space);
    pack_panel(value.data, value.stride, count, call.value_dim, 1, panel->value);
  }
  int64_t extra = task.gradient->o ? call.value_dim : 0;
  fill_extras(*task.want, extras_of(*task.want, *task.gradient), task.batch, panel->keys, panel->value + extra * PANEL);
  __builtin_memset(panel->d_key, 0, sizeof(float) * (size_t)(call.dim * PANEL));
  __builtin_memset(panel->d_value, 0, sizeof(float) * (size_t)(call.value_dim * PANEL));
}

// `scores` becomes p = 2^(log2_scale · (score − m)), and `grad` their gradient; both are 0 where a pair is blocked,
// whatever its numbers are.
template <bool BLOCKS>
static inline void combine(const StateGrad& grads, int64_t skip, int64_t count, const uint64_t* bits, float* scores,
                           float* grad) {
  vf log2_scale = splat(grads.log2_scale);
  for (int64_t r = 0; r < count; r++) {
    vf m = splat(grads.m[skip + r]), rest = splat(grads.rest[skip + r]), base = splat(grads.base[skip + r]);
    vf entropy = splat(grads.entropy[skip + r]), squares = splat(grads.squares[skip + r]);
    REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) {
      int64_t at = r * PANEL + c * LANES;
      vf x = maximum(splat(LEAST - 1.0f), (load(scores + at) - m) * log2_scale - rest);
      vf p = power2_within(x);
      vf d = p * (load(grad + at) + base + entropy * x + squares * p);
      if (BLOCKS) {
        p = keep(bits[r] >> (c * LANES), p, (vf){});
        d = keep(bits[r] >> (c * LANES), d, (vf){});
      }
      store(scores + at, p);
      store(grad + at, d);
    }
  }
}

// The derivative of softcap · tanh(score / softcap), from the product before it.
static inline void fill_cap(const RegardCall& call, const float* products, int64_t count, float* cap) {
  vf inverse = splat((float)(call.scale / call.softcap));
  for (int64_t x = 0; x < count * PANEL; x += LANES) {
    vf bent = hyperbolic_tangent(load(products + x) * inverse);
    store(cap + x, splat(1.0f) - bent * bent);
  }
}

static inline void add_cap(const float* cap, int64_t count, const uint64_t* bits, float* grad) {
  for (int64_t r = 0; r < count; r++)
    for (int c = 0; c < PANEL_VECTORS; c++) {
      int64_t at = r * PANEL + c * LANES;
      vf product = load(grad + at) * load(cap + at);
      store(grad + at, bits ? keep(bits[r] >> (c * LANES), product, (vf){}) : product);
    }
}

// The rows from the `skip`-th on.
static inline Rows from(const Rows& rows, int64_t skip) { return {rows.data + skip * rows.stride, rows.stride}; }

// Adds what one panel gives in a tile to the gradients.
static inline void vjp_tile(const VjpTask& task, const Head& head, const VjpPanel& panel, const QueryTile& tile,
                             StateGrad* grads, Tile kind) {
  const RegardCall& call = *task.call;
  const RegardGradient& gradient = *task.gradient;
  uint64_t bits[TILE];
  Span queries = grads->queries, keys = panel.keys;
  if (kind == SOME && !allowed_rows(head, keys, &queries, bits)) return;
  int64_t skip = (queries.first - grads->queries.first) / queries.step, count = queries.count;
  Runs runs = runs_of(count, keys.count, kind == SOME ? bits : nullptr);
  Rows output = from(tile.output, skip), clean_output = from(tile.clean_output, skip);
  products_again(head, tile.again, runs, keys, panel.key, skip, count, tile.p);
  if (call.softcap != 0) fill_cap(call, tile.p, count, tile.cap);
  bool blocks = finish_scores(head, keys, queries, kind, tile.p, bits, tile.extra);
  add_panel_terms(grads, keys, queries, skip, tile.grad_space);
  score_runs(runs, output.data, output.stride, panel.value, grads->value_dim + grads->extras.count(), tile.grad);
  add_near(*grads, keys, queries, skip, tile.grad);
  if (blocks) combine<true>(*grads, skip, count, bits, tile.p, tile.grad);
  else combine<false>(*grads, skip, count, bits, tile.p, tile.grad);
  if (gradient.value && gradient.o) {
    add_runs(runs, clean_output.data, clean_output.stride, tile.p, call.value_dim, nullptr, panel.d_value);
    if (tile.broken) add_broken(output, count, call.value_dim, tile.p, bits, blocks, panel.d_value);
  }
  if (task.bias) add_bias_gradient(head, gradient, keys, queries, tile.grad, task.bias);
  if (call.softcap != 0) add_cap(tile.cap, count, blocks ? bits : nullptr, tile.grad);
  if (gradient.key) {
    Rows clean_query = from(tile.clean_query, skip);
    add_runs(runs, clean_query.data, clean_query.stride, tile.grad, call.dim, nullptr, panel.d_key);
  }
  if (!task.query) return;
  int64_t stride = round_up_to_lanes(call.dim);
  for (int i = 0; i < runs.count; i++) {
    const Run& run = runs.run[i];
    int64_t lane = run.first * LANES, end = lane + run.vectors * LANES;
    add_transposed(tile.grad + run.begin * PANEL + lane, run.end - run.begin, panel.rows + lane * stride, stride,
               (end < keys.count ? end : keys.count) - lane, call.dim,
               task.query + (grads->origin + (skip + run.begin) * queries.step) * call.dim, queries.step * call.dim);
  }
}

// Reads a tile of queries.
static inline void start_tile(const Head& head, Span queries, QueryTile* tile, StateGrad* grads) {
  const RegardCall& call = *head.call;
  read_queries(head, queries, &tile->again);
  Rows query = queries_in_float(head, queries, tile->query_space);
  tile->clean_query = cleaned(query, queries.count, call.dim, tile->clean_space);
  read_state_grad(head, queries, grads, tile->grad_space);
  tile->output = {grads->rows, grads->stride};
  tile->clean_output = cleaned(tile->output, queries.count, grads->value_dim, tile->clean_output_space);
  tile->broken = tile->clean_output.data != tile->output.data;
}

// Visits the queries that may attend some key of the block, in all heads that share it.
static inline void vjp_head(const VjpTask& task, const VjpPanel* panels, int64_t used, int64_t h, QueryTile* tile) {
  const RegardCall& call = *task.call;
  Head head = head_of(&call, task.mask, task.batch, h, false);
  StateGrad grads = {};
  grads.want = task.want;
  grads.gradient = task.gradient;
  grads.extras = extras_of(*task.want, *task.gradient);
  grads.value_dim = task.gradient->o ? call.value_dim : 0;
  Span block = keys_of(task.step, task.residue, task.first, task.count);
  int64_t there = queries_in(call, task.step, task.residue);
  Span all = queries_of(call, task.step, task.residue, 0, there);
  Walk walk(head, block, all, 0, there);
  int64_t begin, end;
  Tile kind;
  while (walk.next(&begin, &end, &kind)) {
    start_tile(head, {all.first + begin * all.step, all.step, end - begin}, tile, &grads);
    for (int64_t p = 0; p < used; p++) {
      Walk panel_walk(head, panels[p].keys, all, 0, 0);
      Tile here = kind == ALL ? ALL : panel_walk.ask(begin, end);
      if (here != NONE) vjp_tile(task, head, panels[p], *tile, &grads, here);
    }
  }
}

static inline int64_t vjp_space(const RegardCall& call, const RegardWant& want, const RegardGradient& gradient) {
  VjpTask task = {};
  task.call = &call;
  task.want = &want;
  task.gradient = &gradient;
  VjpPanel panels[VJP_PANELS];
  QueryTile tile;
  Space space = {nullptr, 0};
  take_tile(task, &space, panels, &tile);
  space.take<float>(PANEL * (call.dim > call.value_dim ? call.dim : call.value_dim));
  return space.used;
}

static inline void run_vjp(const VjpTask& task, void* scratch) {
  FlushDenormals quiet;
  const RegardCall& call = *task.call;
  VjpPanel panels[VJP_PANELS];
  QueryTile tile;
  Space space = {(char*)scratch, 0};
  take_tile(task, &space, panels, &tile);
  float* rows = space.take<float>(PANEL * (call.dim > call.value_dim ? call.dim : call.value_dim));
  int64_t used = (task.count + PANEL - 1) / PANEL, group = call.heads / call.kv_heads;
  __builtin_memset(tile.p, 0, sizeof(float) * (TILE + TRANSPOSED_ROWS) * PANEL);  // vectors that no run needs are never written
  __builtin_memset(tile.grad, 0, sizeof(float) * (TILE + TRANSPOSED_ROWS) * PANEL);
  if (needs_tiles(call)) amx_begin();
  for (int64_t p = 0; p < used; p++) {
    int64_t left = task.count - p * PANEL;
    start_vjp_panel(task, task.first + p * PANEL, left < PANEL ? left : PANEL, &panels[p], rows);
  }
  for (int64_t h = task.kv_head * group; h < (task.kv_head + 1) * group; h++) vjp_head(task, panels, used, h, &tile);
  if (needs_tiles(call)) amx_end();
  Lanes scale, one;
  for (int64_t x = 0; x < PANEL; x++) { scale[x] = (float)call.scale; one[x] = 1; }
  for (int64_t p = 0; p < used; p++) {
    const VjpPanel& panel = panels[p];
    int64_t at = (task.batch * call.kv_heads + task.kv_head) * call.keys + panel.keys.first;
    if (task.gradient->key)
      unpack_panel(panel.d_key, panel.keys.count, call.dim, scale, one, task.gradient->key + at * call.dim, task.step * call.dim);
    if (task.gradient->value && task.gradient->o)
      unpack_panel(panel.d_value, panel.keys.count, call.value_dim, one, one, task.gradient->value + at * call.value_dim,
                   task.step * call.value_dim);
  }
}

}  // namespace REGARD_ISA
