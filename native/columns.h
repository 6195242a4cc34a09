// The second fold: what belongs to the key. Lanes are keys, rows queries, and the rows' m and l are known, so every tile is
// finished at once: its weights are added (or maximized) into received mass and the cells of the map.
// Works on any mask of a call; the arrays it adds to are zero at the start.
#pragma once
#include "again.h"
#include "plan.h"

namespace REGARD_ISA {

constexpr int64_t CELL_SIDE = 16;       // keys of a task: a multiple of it, so that panels of every build are full
constexpr int64_t ENOUGH_RANGES = 16;   // tasks: fewer are split along the queries
constexpr int64_t LEAST_QUERIES = 512;  // in a chunk of queries

// One head, the keys and the queries of a task by position: all residue classes of both, so that it owns their cells.
struct ColumnsTask {
  const RegardCall* call;
  const RegardColumns* out;
  Head head;
  int64_t step, shift;  // a cell has 2^shift tokens a side
  int64_t key_begin, key_end, query_begin, query_end;
  float *received, *received_max;  // (keys) of this head, null where not wanted
};

// A panel of keys, what its lanes have received, and the row of cells that is being filled.
struct KeyPanel {
  Span keys;
  float *packed, *largest;        // [dim][PANEL], [PANEL]
  double* received;               // [PANEL]
  float *cell_total, *cell_peak;  // [PANEL]
  int64_t cell_row;               // on the absolute grid
};

// Neighboring lanes joined; the lower half holds the result.
template <class Join>
REGARD_INLINE vf join_pairs(vf x, Join join) {
#if REGARD_LANES == 16
  return join(__builtin_shufflevector(x, x, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14),
              __builtin_shufflevector(x, x, 1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15));
#elif REGARD_LANES == 8
  return join(__builtin_shufflevector(x, x, 0, 2, 4, 6, 0, 2, 4, 6),
              __builtin_shufflevector(x, x, 1, 3, 5, 7, 1, 3, 5, 7));
#else
  return join(__builtin_shufflevector(x, x, 0, 2, 0, 2), __builtin_shufflevector(x, x, 1, 3, 1, 3));
#endif
}

// The largest score of each row of a tile, in units of the scores, and log2 l with what rounding took from m. Apart: their
// sum would be rounded at the size of m, and all weights of a row with it.
struct Held {
  float m[TILE], rest[TILE], log2_scale;
};

// Sum and largest of the weights 2^(log2_scale · (score − m) − log2 l) of each lane, over rows [begin, end) of a tile. `bits` may
// be null: all pairs are allowed. A NaN reaches the sum alone.
static inline void weigh(const float* scores, const Held& held, int64_t skip, const uint64_t* bits, const Runs& runs,
                         int64_t begin, int64_t end, float* total, float* peak) {
  const float *m = held.m + skip, *rest = held.rest + skip;
  vf log2_scale = splat(held.log2_scale);
  for (int c = 0; c < PANEL_VECTORS; c++) {
    vf sum = {}, top = {};
    int64_t first = begin > runs.from[c] ? begin : runs.from[c], last = end < runs.to[c] ? end : runs.to[c];
    for (int64_t j = first; j < last; j++) {
      vf p = power2((load(scores + j * PANEL + c * LANES) - splat(m[j])) * log2_scale - splat(rest[j]));
      if (bits) p = keep(bits[j] >> (c * LANES), p, (vf){});
      sum += p;
      top = maximum(top, p);
    }
    store(total + c * LANES, sum);
    store(peak + c * LANES, select(top > splat(1), splat(1), top));  // no weight is above 1, but log2 l was rounded
  }
}

// Adds to one number of a sum and one of a maximum; the maximum is NaN where the sum is.
REGARD_INLINE void add_cell(float total, float peak, float* to_total, float* to_peak) {
  float sum = *to_total + total;
  *to_total = sum;
  *to_peak = (peak > *to_peak ? peak : *to_peak) + (sum - sum);  // no branch: which is larger cannot be foretold
}

// The same for neighboring cells. Not whole vectors: a cell past the last belongs to another task.
static inline void add_cells(const float* total, const float* peak, int64_t count, float* to_total, float* to_peak) {
  typedef float four __attribute__((vector_size(16), aligned(4)));
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    four sum = *(four*)(to_total + i) + *(const four*)(total + i);
    four old = *(four*)(to_peak + i), top = *(const four*)(peak + i);
    *(four*)(to_total + i) = sum;
    *(four*)(to_peak + i) = (top > old ? top : old) + (sum - sum);
  }
  for (; i < count; i++) add_cell(total[i], peak[i], to_total + i, to_peak + i);
}

// Empties the panel's row of cells into the map.
static inline void flush_cells(const ColumnsTask& task, KeyPanel* panel) {
  const RegardColumns& out = *task.out;
  int64_t row = panel->cell_row - (task.call->offset >> task.shift);
  int64_t head = task.head.batch * task.call->heads + task.head.head;
  float* total = out.total + (head * out.grid_q + row) * out.grid_k;
  float* peak = out.peak + (head * out.grid_q + row) * out.grid_k;
  const Span& keys = panel->keys;
  if (task.step > 1) {
    for (int64_t x = 0; x < keys.count; x++) {
      int64_t cell = (keys.first + x * keys.step) >> task.shift;
      add_cell(panel->cell_total[x], panel->cell_peak[x], total + cell, peak + cell);
    }
  } else {
    int64_t each = (int64_t)LANES >> task.shift, first = keys.first >> task.shift;  // cells in a vector; 0: part of one
    float sums[PANEL + LANES], tops[PANEL + LANES];
    for (int64_t c = 0; c * LANES < keys.count; c++) {
      int64_t left = keys.count - c * LANES;
      uint64_t used = left < LANES ? (1ull << left) - 1 : ~0ull;
      vf sum = keep(used, load(panel->cell_total + c * LANES), (vf){});
      vf top = keep(used, load(panel->cell_peak + c * LANES), (vf){});
      for (int64_t joined = LANES; joined > 1 && joined > each; joined /= 2) {
        sum = join_pairs(sum, [](vf a, vf b) { return a + b; });
        top = join_pairs(top, [](vf a, vf b) { return maximum(a, b); });
      }
      store_unaligned(sums + c * each, sum);
      store_unaligned(tops + c * each, top);
      int64_t cell = (keys.first + c * LANES) >> task.shift;
      if (!each) add_cell(sums[0], tops[0], total + cell, peak + cell);
    }
    int64_t cells = ((keys.first + keys.count - 1) >> task.shift) - first + 1;
    if (each) add_cells(sums, tops, cells, total + first, peak + first);
  }
  for (int64_t x = 0; x < PANEL; x += LANES) {
    store(panel->cell_total + x, (vf){});
    store(panel->cell_peak + x, (vf){});
  }
}

// Adds what the queries of one row of cells gave to the panel's lanes.
static inline void add_to_cells(const ColumnsTask& task, KeyPanel* panel, int64_t row, const float* total,
                                const float* peak) {
  if (row != panel->cell_row) {
    flush_cells(task, panel);
    panel->cell_row = row;
  }
  for (int64_t x = 0; x < PANEL; x += LANES) {
    store(panel->cell_total + x, load(panel->cell_total + x) + load(total + x));
    store(panel->cell_peak + x, maximum(load(panel->cell_peak + x), load(peak + x)));
  }
}

// Folds a tile of finished scores: row by row of cells where there is a map, all at once where there is none.
static inline void fold_columns(const ColumnsTask& task, KeyPanel* panel, const float* scores, const Held& held, int64_t skip,
                                const uint64_t* bits, const Runs& runs, Span queries) {
  Lanes total, peak, sum = {}, top = {};
  for (int64_t r = 0; r < queries.count;) {
    int64_t count = queries.count - r, row = 0;
    if (task.out->total) {
      int64_t at = queries.first + r * queries.step;
      row = at >> task.shift;
      int64_t inside = ((row + 1) * ((int64_t)1 << task.shift) - at + queries.step - 1) / queries.step;
      count = inside < count ? inside : count;
    }
    weigh(scores, held, skip, bits, runs, r, r + count, total, peak);
    if (task.out->total) add_to_cells(task, panel, row, total, peak);
    for (int64_t x = 0; x < PANEL; x += LANES) {
      store(sum + x, load(sum + x) + load(total + x));
      store(top + x, maximum(load(top + x), load(peak + x)));
    }
    r += count;
  }
  for (int64_t x = 0; x < PANEL; x++) panel->received[x] += sum[x];
  for (int64_t x = 0; x < PANEL; x += LANES)
    store(panel->largest + x, maximum(load(panel->largest + x), load(top + x)));
}

static inline void take_key_panels(const RegardCall& call, Space* space, KeyPanel* panels) {
  for (int64_t p = 0; p < PANELS; p++) {
    panels[p].packed = space->take<float>(call.dim * PANEL);
    panels[p].largest = space->take<float>(PANEL);
    panels[p].received = space->take<double>(PANEL);
    panels[p].cell_total = space->take<float>(PANEL);
    panels[p].cell_peak = space->take<float>(PANEL);
  }
}

static inline void start_key_panel(const ColumnsTask& task, KeyPanel* panel, Span keys, float* rows_space) {
  panel->keys = keys;
  panel->cell_row = task.query_begin >> task.shift;
  pack_keys(task.head, keys, panel->packed, rows_space);
  for (int64_t x = 0; x < PANEL; x++) {
    panel->received[x] = 0;
    panel->largest[x] = panel->cell_total[x] = panel->cell_peak[x] = 0;
  }
}

static inline void finish_key_panel(const ColumnsTask& task, KeyPanel* panel) {
  if (task.out->total) flush_cells(task, panel);
  for (int64_t x = 0; x < panel->keys.count; x++) {
    int64_t key = panel->keys.first + x * panel->keys.step;
    float total = (float)panel->received[x], ignored_total = 0, ignored_peak = 0;
    add_cell(total, panel->largest[x], task.received ? task.received + key : &ignored_total,
             task.received_max ? task.received_max + key : &ignored_peak);
  }
}

// What is known of a tile's rows. An empty row has m = ∞, so that nothing is left of its weights, whatever its scores are.
static inline void read_held(const ColumnsTask& task, Span queries, Held* held) {
  int64_t head = task.head.batch * task.call->heads + task.head.head, at = head * task.call->queries - task.call->offset;
  double unit = task.head.unit();
  held->log2_scale = task.head.log2_scale();
  for (int64_t r = 0; r < queries.count; r++) {
    int64_t row = at + queries.first + r * queries.step;
    double m = task.out->m[row], log_l = task.out->log_l[row] / LN2_EXACT;
    float score = (float)(m / unit);
    bool empty = log_l == -INF;
    held->m[r] = empty ? INF : score;
    held->rest[r] = empty ? 0 : (float)(log_l + rounded_off(m, score, unit));
  }
}

// The queries `begin ≤ i < end` of a residue class against one block of keys, packed as panels.
static inline void fold_keys(const ColumnsTask& task, KeyPanel* panels, int64_t used, Span block, Span queries,
                             int64_t begin, int64_t end, Space space) {
  const RegardCall& call = *task.call;
  Again again;
  take_again(call, &space, &again);
  float* scores = space.take<float>(TILE * PANEL);
  float* extra = space.take<float>(SCORE_SPACE);
  uint64_t allowed_bits[TILE];
  __builtin_memset(scores, 0, sizeof(float) * TILE * PANEL);  // lanes past the last key are never written
  Held held;
  Walk walk(task.head, block, queries, begin, end);
  Tile kind;
  while (walk.next(&begin, &end, &kind)) {
    Span tile = {queries.first + begin * queries.step, queries.step, end - begin};
    read_queries(task.head, tile, &again);
    read_held(task, tile, &held);
    for (int64_t p = 0; p < used; p++) {
      KeyPanel* panel = &panels[p];
      Walk panel_walk(task.head, panel->keys, queries, 0, 0);
      Tile here = kind == ALL ? ALL : panel_walk.ask(begin, end);
      if (here == NONE) continue;
      Span cut = tile;
      if (here == SOME && !allowed_rows(task.head, panel->keys, &cut, allowed_bits)) continue;
      int64_t skip = (cut.first - tile.first) / queries.step;
      Runs runs = runs_of(cut.count, panel->keys.count, here == SOME ? allowed_bits : nullptr);
      products_again(task.head, again, runs, panel->keys, panel->packed, skip, cut.count, scores);
      bool blocks = finish_scores(task.head, panel->keys, cut, here, scores, allowed_bits, extra);
      fold_columns(task, panel, scores, held, skip, blocks ? allowed_bits : nullptr, runs, cut);
    }
  }
}

static inline int64_t columns_space(const RegardCall& call) {
  KeyPanel panels[PANELS];
  Space space = {nullptr, 0};
  take_key_panels(call, &space, panels);
  space.take<float>(PANEL * call.dim);
  Again again;
  take_again(call, &space, &again);
  space.take<float>(TILE * PANEL + SCORE_SPACE);
  return space.used + 1024;
}

// How many of the positions first, first + step, … lie below `position`.
static inline int64_t places_below(int64_t position, int64_t first, int64_t step) {
  return position <= first ? 0 : (position - first + step - 1) / step;
}

static inline void run_columns(const ColumnsTask& task, void* scratch) {
  FlushDenormals quiet;
  const RegardCall& call = *task.call;
  Space space = {(char*)scratch, 0};
  KeyPanel panels[PANELS];
  take_key_panels(call, &space, panels);
  float* rows_space = space.take<float>(PANEL * call.dim);
  if (needs_tiles(call)) amx_begin();
  for (int64_t residue = 0; residue < task.step; residue++) {
    Span queries = queries_of(call, task.step, residue, 0, queries_in(call, task.step, residue));
    int64_t begin = places_below(task.query_begin, queries.first, task.step);
    int64_t end = places_below(task.query_end, queries.first, task.step);
    int64_t last = places_below(task.key_end, residue, task.step);
    if (begin >= end) continue;
    for (int64_t at = places_below(task.key_begin, residue, task.step); at < last; at += PANELS * PANEL) {
      int64_t count = last - at < PANELS * PANEL ? last - at : PANELS * PANEL, used = (count + PANEL - 1) / PANEL;
      for (int64_t p = 0; p < used; p++) {
        int64_t left = count - p * PANEL;
        Span keys = keys_of(task.step, residue, at + p * PANEL, left < PANEL ? left : PANEL);
        start_key_panel(task, &panels[p], keys, rows_space);
      }
      fold_keys(task, panels, used, keys_of(task.step, residue, at, count), queries, begin, end, space);
      for (int64_t p = 0; p < used; p++) finish_key_panel(task, &panels[p]);
    }
  }
  if (needs_tiles(call)) amx_end();
}

// How keys and queries of one part of the mask are cut into tasks: along cells, so that none is shared.
struct ColumnsPlan {
  int64_t keys, ranges;     // keys in a range
  int64_t queries, chunks;  // queries in a chunk
  int64_t origin;           // position at which the first chunk starts

  ColumnsPlan(const RegardCall& call, int64_t cell, int64_t step) {
    int64_t unit = PANEL_VECTORS * (cell > CELL_SIDE ? cell : CELL_SIDE), least = PANELS * PANEL * step;
    keys = (least + unit - 1) / unit * unit;
    ranges = (call.keys + keys - 1) / keys;
    int64_t tasks = call.batch * call.heads * ranges, most = call.queries / LEAST_QUERIES;
    int64_t some = (ENOUGH_RANGES + tasks - 1) / tasks;
    some = some < most ? some : most > 1 ? most : 1;
    queries = ((call.queries + some - 1) / some + cell - 1) / cell * cell;
    origin = call.offset & -cell;
    chunks = (call.offset + call.queries - origin + queries - 1) / queries;
  }
};

static inline int columns_of_part(const RegardCall& call, const RegardColumns& out, int64_t part, float* received,
                                  float* received_max) {
  const RegardMask* mask = call.mask + part;
  int64_t cell = out.total ? out.cell : 1, heads = call.batch * call.heads;
  ColumnsPlan plan(call, cell, mask->step);
  return run(heads * plan.chunks * plan.ranges, call.threads, columns_space(call), [&](int64_t i, void* scratch) {
    int64_t range = plan.ranges - 1 - i % plan.ranges;  // under a causal mask the early keys have the most queries
    int64_t chunk = i / plan.ranges % plan.chunks, head = i / plan.ranges / plan.chunks;
    int64_t first = plan.origin + chunk * plan.queries, place = (chunk * heads + head) * call.keys;
    ColumnsTask task = {};
    task.call = &call;
    task.out = &out;
    task.head = head_of(&call, mask, head / call.heads, head % call.heads, false);
    task.step = mask->step;
    task.shift = __builtin_ctzll((uint64_t)cell);
    task.key_begin = range * plan.keys;
    task.key_end = task.key_begin + plan.keys < call.keys ? task.key_begin + plan.keys : call.keys;
    task.query_begin = first > call.offset ? first : call.offset;
    int64_t end = call.offset + call.queries;
    task.query_end = first + plan.queries < end ? first + plan.queries : end;
    task.received = received ? received + place : nullptr;
    task.received_max = received_max ? received_max + place : nullptr;
    run_columns(task, scratch);
  });
}

// Adds the whole second fold to `out`. Chunks of queries have column sums of their own, which are added in order.
static inline int all_columns(const RegardCall& call, const RegardColumns& out) {
  int64_t heads = call.batch * call.heads, size = heads * call.keys, chunks = 1;
  for (int64_t part = 0; part < call.masks; part++) {
    ColumnsPlan plan(call, out.total ? out.cell : 1, call.mask[part].step);
    chunks = plan.chunks > chunks ? plan.chunks : chunks;
  }
  float* pieces = chunks > 1 ? (float*)calloc((size_t)(2 * chunks * size), sizeof(float)) : nullptr;
  if (chunks > 1 && !pieces) return NO_MEMORY;
  float* received = pieces ? pieces : out.received;
  float* received_max = pieces ? pieces + chunks * size : out.received_max;
  int failed = DONE;
  for (int64_t part = 0; part < call.masks && !failed; part++)
    failed = columns_of_part(call, out, part, received, received_max);
  if (pieces && !failed)
    failed = run(heads, call.threads, 64, [&](int64_t head, void*) {
      for (int64_t at = head * call.keys; at < (head + 1) * call.keys; at++) {
        double total = 0;
        float largest = 0;
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
          total += received[chunk * size + at];
          float x = received_max[chunk * size + at];
          largest = x > largest || x != x ? x : largest;
        }
        if (out.received) out.received[at] += (float)total;
        if (out.received_max) out.received_max[at] = total != total ? (float)total : largest;
      }
    });
  free(pieces);
  return failed;
}

}  // namespace REGARD_ISA
