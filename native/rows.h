// The first fold: a block of queries, packed as panels, visits its keys tile by tile.
#pragma once
#include "finish.h"
#include "halves.h"

namespace REGARD_ISA {

constexpr int64_t PANELS = 4;       // panels in a block: a tile of keys is read once for all of them

struct RowsTask {
  const RegardCall* call;
  const RegardWant* want;
  Head head;
  int64_t step, residue;
  int64_t first, count;       // queries of the residue class
  int64_t begin, end;         // keys of the residue class
  RegardState state;          // where the result goes
  int64_t row_stride, chunk;  // row i of the call lies at i · row_stride + chunk
  bool add;                   // merge with what is there
  bool careful;               // look for values that are not finite
};

// Whether products of a wide call are those of pairs of bfloat16 numbers.
static inline bool in_halves(const RegardCall& call) {
  return call.halves && call.type == REGARD_BFLOAT16 && call.dim % 2 == 0;
}

// Values with 0 for NaN and inf, which a weight of 0 does not silence.
static inline void clean(Rows values, int64_t count, int64_t width, float* to) {
  for (int64_t j = 0; j < count; j++)
    for (int64_t d = 0; d < width; d++) {
      float x = values.data[j * values.stride + d];
      to[j * width + d] = x - x == 0 ? x : 0;
    }
}

// The products that `clean` left out: they reach allowed pairs only.
static inline void add_broken(Rows values, int64_t count, int64_t width, const float* p, const uint64_t* bits, bool blocks, float* o) {
  for (int64_t j = 0; j < count; j++)
    for (int64_t d = 0; d < width; d++) {
      float value = values.data[j * values.stride + d];
      if (value - value == 0) continue;
      for (int64_t x = 0; x < PANEL; x++)
        if (!blocks || (bits[j] >> x & 1)) o[d * PANEL + x] += p[j * PANEL + x] * value;
    }
}

static inline void take_panels(const RowsTask& task, Space* space, Panel* panels) {
  const RegardCall& call = *task.call;
  const RegardWant& want = *task.want;
  for (int64_t p = 0; p < PANELS; p++) {
    panels[p].packed = space->take<float>(call.dim * PANEL);
    panels[p].o = space->take<float>(call.value_dim * PANEL);
    panels[p].m = space->take<float>(PANEL);
    panels[p].best = space->take<float>(PANEL);
    panels[p].least = space->take<float>(PANEL);
    panels[p].l = space->take<double>(PANEL);
    panels[p].u = space->take<double>(PANEL);
    panels[p].r = space->take<double>(PANEL);
    panels[p].c = space->take<double>(want.columns * PANEL);
    panels[p].count = space->take<int64_t>(PANEL);
    panels[p].best_row = space->take<int32_t>(PANEL);
    panels[p].top_scores = space->take<float>(want.top * PANEL);
    panels[p].top_keys = space->take<int64_t>(want.top * PANEL);
    panels[p].ids = space->take<int32_t>(want.matches * PANEL);
  }
}

static inline void start_panel(const RowsTask& task, Panel* panel, int64_t first, int64_t count, float* rows_space) {
  const RegardCall& call = *task.call;
  const RegardWant& want = *task.want;
  panel->queries = queries_of(call, task.step, task.residue, first, count);
  panel->log2_scale = task.head.log2_scale();
  int64_t row = panel->queries.first - call.offset;
  if (in_halves(call)) {
    pack_pairs(halves_of(call.query, task.head.batch, task.head.head, row), task.step * call.query.row, count, call.dim / 2,
               (uint32_t*)panel->packed);
  } else {
    Rows rows = rows_of(call.query, call.type, task.head.batch, task.head.head, row, task.step, count, call.dim, rows_space);
    pack_panel(rows.data, rows.stride, count, call.dim, 1, panel->packed);
  }
  if (want.output) __builtin_memset(panel->o, 0, sizeof(float) * (__SIZE_TYPE__)(call.value_dim * PANEL));
  for (int64_t i = 0; i < want.columns * PANEL; i++) panel->c[i] = 0;
  take_ids(call, want, task.head.batch, panel->queries, panel->ids);
  for (int64_t i = 0; i < want.top * PANEL; i++) { panel->top_scores[i] = -INF; panel->top_keys[i] = NO_KEY; }
  for (int64_t x = 0; x < PANEL; x++) {
    panel->m[x] = panel->best[x] = -INF;
    panel->least[x] = INF;
    panel->l[x] = panel->u[x] = panel->r[x] = 0;
    panel->count[x] = 0;
    panel->best_row[x] = 0;
  }
}

// Whether every output of a panel is finite: else a value that is not may have leaked through a weight of 0.
static inline bool finite(const RowsTask& task, const Panel& panel) {
  vf bad = {};
  for (int64_t x = 0; task.want->output && x < task.call->value_dim * PANEL; x += LANES) {
    vf o = load(panel.o + x);
    bad += o - o;
  }
  return sum(bad) == 0;
}

// Writes a panel's rows to memory, in natural units.
static inline void finish_panel(const RowsTask& task, const Panel& panel) {
  const RegardCall& call = *task.call;
  Finished rows = {panel, *task.want, task.head.unit(), task.residue, task.step};
  int64_t origin = (task.head.batch * call.heads + task.head.head) * call.queries + panel.queries.first - call.offset;
  Places at = {origin * task.row_stride + task.chunk, task.step * task.row_stride};
  Lanes old_factor, new_factor;
  for (int64_t x = 0; x < PANEL; x++) old_factor[x] = new_factor[x] = 1;
  if (task.add) merge_rows(rows, task.state, at, call.value_dim, old_factor, new_factor);
  else write_rows(rows, task.state, at);
  if (task.want->output)
    unpack_panel(panel.o, panel.queries.count, call.value_dim, new_factor, task.add ? old_factor : nullptr,
                 task.state.o + at.first * call.value_dim, at.step * call.value_dim);
}

// Scratch of one block.
struct BlockSpace {
  float *keys, *values, *clean, *scores, *extra;
  uint32_t *columns, *pairs;  // values transposed and weights rounded, as pairs of bfloat16 numbers
  uint16_t* tail;
};
static inline BlockSpace take_block(const RegardCall& call, Space* space) {
  BlockSpace block;
  block.keys = space->take<float>(TILE * call.dim);
  block.values = space->take<float>(TILE * call.value_dim);
  block.clean = space->take<float>(TILE * call.value_dim);
  block.scores = space->take<float>(TILE * PANEL);
  block.extra = space->take<float>(SCORE_SPACE);
  block.columns = space->take<uint32_t>(TILE / 2 * call.value_dim);
  block.pairs = space->take<uint32_t>(TILE / 2 * PANEL);
  block.tail = space->take<uint16_t>(in_halves(call) ? tail_size(call.dim) : 0);
  return block;
}

// Adds a tile's values under its weights.
static inline void add_values(const RowsTask& task, const Panel& panel, const Runs& runs, Rows values, int64_t count,
                              const uint64_t* bits, bool blocks, const float* factor, const BlockSpace& space) {
  int64_t width = task.call->value_dim;
  if (!task.careful) return add_runs(runs, values.data, values.stride, space.scores, width, factor, panel.o);
  clean(values, count, width, space.clean);
  add_runs(runs, space.clean, width, space.scores, width, factor, panel.o);
  add_broken(values, count, width, space.scores, bits, blocks, panel.o);
}

// One panel against one tile of keys [begin, end), whose keys and values are at hand in float32.
static inline void fold_panel(const RowsTask& task, const Panel& panel, Span keys, int64_t begin, int64_t end, Tile kind,
                              Rows key, Rows value, const BlockSpace& space) {
  const RegardCall& call = *task.call;
  const RegardWant& want = *task.want;
  uint64_t bits[TILE];
  Lanes factor;
  Span tile = {keys.first + begin * keys.step, keys.step, end - begin};
  if (kind == SOME && !allowed_rows(task.head, panel.queries, &tile, bits)) return;
  int64_t a = (tile.first - keys.first) / keys.step;
  Runs runs = runs_of(tile.count, panel.queries.count, kind == SOME ? bits : nullptr);
  score_runs(runs, key.data + (a - begin) * key.stride, key.stride, panel.packed, call.dim, space.scores);
  bool blocks = finish_scores(task.head, panel.queries, tile, kind, space.scores, bits, space.extra);
  if (want.count) add_count(panel, bits, tile.count, runs, blocks);
  fold_tile(want, task.head.batch, panel, space.scores, a, tile, runs, blocks ? bits : nullptr, factor);
  if (!want.output) return;
  Rows mine = {value.data + (a - begin) * value.stride, value.stride};
  add_values(task, panel, runs, mine, tile.count, bits, blocks, factor, space);
}

// The same in pairs of bfloat16 numbers; space.columns holds the tile's values, or `value` in a careful pass.
static inline void fold_panel_halves(const RowsTask& task, const Panel& panel, Span keys, int64_t begin, int64_t end, Tile kind,
                                     Rows value, const BlockSpace& space) {
  const RegardCall& call = *task.call;
  const RegardWant& want = *task.want;
  uint64_t bits[TILE], seen = 0;
  Lanes factor;
  Span tile = {keys.first + begin * keys.step, keys.step, end - begin};
  if (kind == SOME) {  // not trimmed: pairs of keys are those of the tile
    allowed(task.head.allows(), task.head.batch, task.head.head, panel.queries, tile, true, bits);
    for (int64_t j = 0; j < tile.count; j++) seen |= bits[j];
    if (!seen) return;
  }
  Runs runs = runs_of(tile.count, panel.queries.count, kind == SOME ? bits : nullptr);
  score_halves(call.halves > 1, halves_of(call.key, task.head.batch, task.head.kv_head, tile.first), keys.step * call.key.row,
               tile.count, (const uint32_t*)panel.packed, call.dim, space.tail, space.scores);
  bool blocks = finish_scores(task.head, panel.queries, tile, kind, space.scores, bits, space.extra);
  if (want.count) add_count(panel, bits, tile.count, runs, blocks);
  fold_tile(want, task.head.batch, panel, space.scores, begin, tile, runs, blocks ? bits : nullptr, factor);
  if (!want.output) return;
  if (task.careful) return add_values(task, panel, runs, value, tile.count, bits, blocks, factor, space);
  round_weights(space.scores, tile.count, space.pairs);
  add_halves(call.halves > 1, space.columns, space.pairs, tile.count, call.value_dim, factor, panel.o);
}

// One pass of a block over its keys.
static inline void fold_block(const RowsTask& task, Panel* panels, int64_t used, Space space) {
  const RegardCall& call = *task.call;
  const Head& head = task.head;
  BlockSpace scratch = take_block(call, &space);
  __builtin_memset(scratch.scores, 0, sizeof(float) * TILE * PANEL);  // lanes past the last query are never written
  Span block = {panels[0].queries.first, task.step, task.count};
  Span keys = keys_of(task.step, task.residue, 0, task.end);
  Walk walk(head, block, keys, task.begin, task.end);
  int64_t begin, end;
  Tile kind;
  bool halves = in_halves(call), pairs = halves && !task.careful;
  while (walk.next(&begin, &end, &kind)) {
    int64_t first = keys.first + begin * keys.step, count = end - begin;
    Rows key = {}, value = {};
    if (!halves)
      key = rows_of(call.key, call.type, head.batch, head.kv_head, first, keys.step, count, call.dim, scratch.keys);
    if (task.want->output && pairs)
      pack_values(halves_of(call.value, head.batch, head.kv_head, first), keys.step * call.value.row, count, call.value_dim,
                  scratch.columns);
    else if (task.want->output)
      value = rows_of(call.value, call.type, head.batch, head.kv_head, first, keys.step, count, call.value_dim, scratch.values);
    for (int64_t p = 0; p < used; p++) {
      Walk panel_walk(head, panels[p].queries, keys, 0, 0);
      Tile here = kind == ALL ? ALL : panel_walk.ask(begin, end);
      if (here == NONE) continue;
      if (halves) fold_panel_halves(task, panels[p], keys, begin, end, here, value, scratch);
      else fold_panel(task, panels[p], keys, begin, end, here, key, value, scratch);
    }
  }
}

static inline int64_t rows_space(const RegardCall& call, const RegardWant& want) {
  RowsTask task = {};
  task.call = &call;
  task.want = &want;
  Panel panels[PANELS];
  Space space = {nullptr, 0};
  take_panels(task, &space, panels);
  space.take<float>(PANEL * call.dim);
  take_block(call, &space);
  return space.used + 1024;
}

// A task: at most PANELS · PANEL queries of one residue class, one head, one stretch of keys.
static inline void run_rows(RowsTask task, void* scratch) {
  FlushDenormals quiet;
  Space space = {(char*)scratch, 0};
  Panel panels[PANELS];
  take_panels(task, &space, panels);
  float* rows_space = space.take<float>(PANEL * task.call->dim);
  int64_t used = (task.count + PANEL - 1) / PANEL;
  bool tiles = in_halves(*task.call) && task.call->halves > 1;
  for (;; task.careful = true) {
    if (tiles) amx_begin();
    for (int64_t p = 0; p < used; p++) {
      int64_t left = task.count - p * PANEL;
      start_panel(task, &panels[p], task.first + p * PANEL, left < PANEL ? left : PANEL, rows_space);
    }
    fold_block(task, panels, used, space);
    if (tiles) amx_end();
    bool good = true;
    for (int64_t p = 0; p < used && good; p++) good = finite(task, panels[p]);
    if (good || task.careful) break;
  }
  for (int64_t p = 0; p < used; p++) finish_panel(task, panels[p]);
}

}  // namespace REGARD_ISA
