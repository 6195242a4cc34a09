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
constexpr int64_t KEPT_STRIDE = PANEL + LANES;  // of a kept row of weights, with room on the right

// One head, the keys and the queries of a task by position: all residue classes of both, so that it owns their cells.
struct ColumnsTask {
  const RegardCall* call;
  const RegardColumns* out;
  Head head;
  int64_t step, shift;  // a cell has 2^shift tokens a side
  int64_t key_begin, key_end, query_begin, query_end;
  float *received, *received_max;  // (keys) of this head, null where not wanted
  double* by_offset;               // by k − q, from that of the task's first key and last query on; null where not wanted
  float* weighted;                 // (keys, vectors) of this head, null where not wanted
};

// A panel of keys, what its lanes have received, and the row of cells that is being filled.
struct KeyPanel {
  Span keys;
  float *packed, *largest;        // [dim][PANEL], [PANEL]
  double* received;               // [PANEL]
  double* weighted;               // [vectors][PANEL]
  float *cell_total, *cell_peak;  // [PANEL]
  int64_t cell_row;               // counted from the first one of the map
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
// be null: all pairs are allowed. A NaN reaches the sum alone. With KEEP the weights are written to `kept` too, row by row, 0
// where a row or a lane past the first `lanes` has none.
template <bool KEEP>
static inline void weigh(const float* scores, const Held& held, int64_t skip, const uint64_t* bits, const Runs& runs,
                         int64_t begin, int64_t end, float* total, float* peak, float* kept, int64_t lanes) {
  const float *m = held.m + skip, *rest = held.rest + skip;
  vf log2_scale = splat(held.log2_scale);
  for (int c = 0; c < PANEL_VECTORS; c++) {
    vf sum = {}, top = {};
    int64_t first = begin > runs.from[c] ? begin : runs.from[c], last = end < runs.to[c] ? end : runs.to[c];
    int64_t left = lanes - c * LANES;
    uint64_t used = left >= LANES ? ~0ull : left > 0 ? (1ull << left) - 1 : 0;
    if constexpr (KEEP) {
      int64_t low = first < end ? first : end, high = last > low ? last : low;
      for (int64_t j = begin; j < low; j++) store(kept + j * KEPT_STRIDE + c * LANES, (vf){});
      for (int64_t j = high; j < end; j++) store(kept + j * KEPT_STRIDE + c * LANES, (vf){});
    }
    for (int64_t j = first; j < last; j++) {
      vf p = power2((load(scores + j * PANEL + c * LANES) - splat(m[j])) * log2_scale - splat(rest[j]));
      if (bits) p = keep(bits[j] >> (c * LANES), p, (vf){});
      if constexpr (KEEP) store(kept + j * KEPT_STRIDE + c * LANES, keep(used, p, (vf){}));
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
  int64_t row = panel->cell_row, first_key = out.first_key;
  int64_t head = task.head.batch * task.call->heads + task.head.head;
  float* total = out.total + (head * out.grid_q + row) * out.grid_k;
  float* peak = out.peak + (head * out.grid_q + row) * out.grid_k;
  const Span& keys = panel->keys;
  if (task.step > 1) {
    for (int64_t x = 0; x < keys.count; x++) {
      int64_t cell = (keys.first + x * keys.step - first_key) >> task.shift;
      add_cell(panel->cell_total[x], panel->cell_peak[x], total + cell, peak + cell);
    }
  } else {
    int64_t each = (int64_t)LANES >> task.shift;  // cells in a vector; 0: part of one
    int64_t first = (keys.first - first_key) >> task.shift;
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
      int64_t cell = (keys.first + c * LANES - first_key) >> task.shift;
      if (!each) add_cell(sums[0], tops[0], total + cell, peak + cell);
    }
    int64_t cells = ((keys.first + keys.count - 1 - first_key) >> task.shift) - first + 1;
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

// Sums of a tile's kept weights along its diagonals. Diagonal i of the tile is that of lanes x and rows r with
// x − r = i − (rows − 1): for LANES neighboring ones, each row gives a vector that begins one lane further right.
static inline void add_diagonals(const ColumnsTask& task, const float* kept, Span keys, Span queries) {
  int64_t rows = queries.count, diagonals = rows + keys.count - 1;
  int64_t origin = task.key_begin - (task.query_end - 1);
  double* to = task.by_offset + (keys.first - queries.first - (rows - 1) * task.step - origin);
  for (int64_t i = 0; i < diagonals; i += LANES) {
    int64_t first = rows - i - LANES, last = PANEL + rows - 1 - i;
    first = first > 0 ? first : 0;
    last = last < rows ? last : rows;
    const float* from = kept + i - (rows - 1);
    vf sums[4] = {};
    int64_t r = first;
    for (; r + 4 <= last; r += 4)
      REGARD_UNROLL for (int u = 0; u < 4; u++) sums[u] += load_unaligned(from + (r + u) * (KEPT_STRIDE + 1));
    for (; r < last; r++) sums[0] += load_unaligned(from + r * (KEPT_STRIDE + 1));
    alignas(64) float sum[LANES];
    store(sum, (sums[0] + sums[1]) + (sums[2] + sums[3]));
    int64_t count = diagonals - i < LANES ? diagonals - i : LANES;
    if (task.step == 1 && count == LANES) {
      for (int lane = 0; lane < LANES; lane++) to[i + lane] += (double)sum[lane];
    } else {
      for (int64_t lane = 0; lane < count; lane++) to[(i + lane) * task.step] += (double)sum[lane];
    }
  }
}

// Sums of a tile's kept weights, each row times what is given for its query.
static inline void add_weighted(const ColumnsTask& task, KeyPanel* panel, const float* kept, Span queries) {
  const RegardCall& call = *task.call;
  int64_t vectors = task.out->vectors, head = task.head.batch * call.heads + task.head.head;
  const float* given = task.out->given + (head * call.queries + queries.first - call.offset) * vectors;
  for (int64_t v = 0; v < vectors; v++) {
    vf sums[PANEL_VECTORS] = {};
    for (int64_t r = 0; r < queries.count; r++) {
      vf factor = splat(given[r * queries.step * vectors + v]);
      REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) sums[c] += factor * load(kept + r * KEPT_STRIDE + c * LANES);
    }
    alignas(64) float sum[PANEL];
    for (int c = 0; c < PANEL_VECTORS; c++) store(sum + c * LANES, sums[c]);
    double* to = panel->weighted + v * PANEL;
    for (int64_t x = 0; x < PANEL; x++) to[x] += (double)sum[x];
  }
}

// Folds a tile of finished scores: row by row of cells where there is a map, all at once where there is none.
static inline void fold_columns(const ColumnsTask& task, KeyPanel* panel, const float* scores, const Held& held, int64_t skip,
                                const uint64_t* bits, const Runs& runs, Span queries, float* kept) {
  Lanes total, peak, sum = {}, top = {};
  for (int64_t r = 0; r < queries.count;) {
    int64_t count = queries.count - r, row = 0;
    if (task.out->total) {
      int64_t at = queries.first + r * queries.step - task.out->origin;
      row = at >> task.shift;
      int64_t inside = ((row + 1) * ((int64_t)1 << task.shift) - at + queries.step - 1) / queries.step;
      count = inside < count ? inside : count;
    }
    if (kept) weigh<true>(scores, held, skip, bits, runs, r, r + count, total, peak, kept, panel->keys.count);
    else weigh<false>(scores, held, skip, bits, runs, r, r + count, total, peak, nullptr, 0);
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
  if (task.by_offset) add_diagonals(task, kept, panel->keys, queries);
  if (task.weighted) add_weighted(task, panel, kept, queries);
}

static inline void take_key_panels(const RegardCall& call, int64_t vectors, Space* space, KeyPanel* panels) {
  for (int64_t p = 0; p < PANELS; p++) {
    panels[p].packed = space->take<float>(call.dim * PANEL);
    panels[p].largest = space->take<float>(PANEL);
    panels[p].received = space->take<double>(PANEL);
    panels[p].weighted = space->take<double>(vectors * PANEL);
    panels[p].cell_total = space->take<float>(PANEL);
    panels[p].cell_peak = space->take<float>(PANEL);
  }
}

static inline void start_key_panel(const ColumnsTask& task, KeyPanel* panel, Span keys, float* rows_space) {
  panel->keys = keys;
  panel->cell_row = (task.query_begin - task.out->origin) >> task.shift;
  pack_keys(task.head, keys, panel->packed, rows_space);
  for (int64_t x = 0; x < PANEL; x++) {
    panel->received[x] = 0;
    panel->largest[x] = panel->cell_total[x] = panel->cell_peak[x] = 0;
  }
  for (int64_t x = 0; task.weighted && x < task.out->vectors * PANEL; x++) panel->weighted[x] = 0;
}

static inline void finish_key_panel(const ColumnsTask& task, KeyPanel* panel) {
  if (task.out->total) flush_cells(task, panel);
  for (int64_t x = 0; x < panel->keys.count; x++) {
    int64_t key = panel->keys.first + x * panel->keys.step;
    float total = (float)panel->received[x], ignored_total = 0, ignored_peak = 0;
    add_cell(total, panel->largest[x], task.received ? task.received + key : &ignored_total,
             task.received_max ? task.received_max + key : &ignored_peak);
    int64_t vectors = task.weighted ? task.out->vectors : 0;
    for (int64_t v = 0; v < vectors; v++) task.weighted[key * vectors + v] += (float)panel->weighted[v * PANEL + x];
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
  float* kept = nullptr;
  uint64_t allowed_bits[TILE];
  __builtin_memset(scores, 0, sizeof(float) * TILE * PANEL);  // lanes past the last key are never written
  if (task.by_offset || task.weighted) {
    float* room = space.take<float>(LANES + TILE * KEPT_STRIDE);
    __builtin_memset(room, 0, sizeof(float) * (LANES + TILE * KEPT_STRIDE));  // beside the rows it stays so
    kept = room + LANES;
  }
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
      fold_columns(task, panel, scores, held, skip, blocks ? allowed_bits : nullptr, runs, cut, kept);
    }
  }
}

static inline int64_t columns_space(const RegardCall& call, int64_t vectors) {
  KeyPanel panels[PANELS];
  Space space = {nullptr, 0};
  take_key_panels(call, vectors, &space, panels);
  space.take<float>(PANEL * call.dim);
  Again again;
  take_again(call, &space, &again);
  space.take<float>(TILE * PANEL + SCORE_SPACE + LANES + TILE * KEPT_STRIDE + 16);
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
  take_key_panels(call, task.weighted ? task.out->vectors : 0, &space, panels);
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

  ColumnsPlan(const RegardCall& call, const RegardColumns& out, int64_t step) {
    int64_t cell = out.total ? out.cell : 1;
    int64_t unit = PANEL_VECTORS * (cell > CELL_SIDE ? cell : CELL_SIDE), least = PANELS * PANEL * step;
    keys = (least + unit - 1) / unit * unit;
    ranges = (call.keys - out.first_key + keys - 1) / keys;
    int64_t tasks = call.batch * call.heads * ranges, most = call.queries / LEAST_QUERIES;
    int64_t some = (ENOUGH_RANGES + tasks - 1) / tasks;
    some = some < most ? some : most > 1 ? most : 1;
    queries = ((call.queries + some - 1) / some + cell - 1) / cell * cell;
    origin = out.total ? out.origin + ((call.offset - out.origin) & -cell) : call.offset;
    chunks = (call.offset + call.queries - origin + queries - 1) / queries;
    // Each task has diagonals of its own, as long as its queries: with them there are few tasks, of many keys.
    if (!out.by_offset) return;
    int64_t split = (FEWEST + call.batch * call.heads * chunks - 1) / (call.batch * call.heads * chunks);
    keys *= (ranges + split - 1) / split;
    ranges = (call.keys - out.first_key + keys - 1) / keys;
  }
  int64_t diagonals() const { return queries + keys; }  // of a task, at most
};

// Sums of the tasks' diagonals of one head, added to those of the call, which run the other way.
static inline void add_offsets(const RegardCall& call, const RegardColumns& out, const ColumnsPlan& plan, int64_t head,
                               const double* pieces, double* total) {
  int64_t many = call.queries + call.keys - 1, end = call.offset + call.queries, tasks = plan.chunks * plan.ranges;
  for (int64_t i = 0; i < many; i++) total[i] = 0;
  for (int64_t i = 0; i < tasks; i++) {
    int64_t chunk = i / plan.ranges, first_key = (plan.ranges - 1 - i % plan.ranges) * plan.keys;
    int64_t first = plan.origin + chunk * plan.queries, last = first + plan.queries;
    int64_t keys = first_key + plan.keys < call.keys ? plan.keys : call.keys - first_key;
    first = first > call.offset ? first : call.offset;
    last = last < end ? last : end;
    const double* from = pieces + (head * tasks + i) * plan.diagonals();
    double* to = total + (first_key - (last - 1)) + end - 1;
    for (int64_t j = 0; j < last - first + keys - 1; j++) to[j] += from[j];
  }
  float* result = out.by_offset + head * many;
  for (int64_t i = 0; i < many; i++) result[many - 1 - i] += (float)total[i];
}

static inline int columns_of_part(const RegardCall& call, const RegardColumns& out, int64_t part, float* received,
                                  float* received_max, float* weighted) {
  const RegardMask* mask = call.mask + part;
  int64_t cell = out.total ? out.cell : 1, heads = call.batch * call.heads;
  ColumnsPlan plan(call, out, mask->step);
  int64_t tasks = heads * plan.chunks * plan.ranges, vectors = out.weighted ? out.vectors : 0;
  double* pieces = out.by_offset ? (double*)calloc((size_t)(tasks * plan.diagonals()), sizeof(double)) : nullptr;
  if (out.by_offset && !pieces) return NO_MEMORY;
  int failed = run(tasks, call.threads, columns_space(call, vectors), [&](int64_t i, void* scratch) {
    int64_t range = plan.ranges - 1 - i % plan.ranges;  // under a causal mask the early keys have the most queries
    int64_t chunk = i / plan.ranges % plan.chunks, head = i / plan.ranges / plan.chunks;
    int64_t first = plan.origin + chunk * plan.queries, place = (chunk * heads + head) * call.keys;
    ColumnsTask task = {};
    task.call = &call;
    task.out = &out;
    task.head = head_of(&call, mask, head / call.heads, head % call.heads, false);
    task.step = mask->step;
    task.shift = __builtin_ctzll((uint64_t)cell);
    task.key_begin = out.first_key + range * plan.keys;
    task.key_end = task.key_begin + plan.keys < call.keys ? task.key_begin + plan.keys : call.keys;
    task.query_begin = first > call.offset ? first : call.offset;
    int64_t end = call.offset + call.queries;
    task.query_end = first + plan.queries < end ? first + plan.queries : end;
    task.received = received ? received + place : nullptr;
    task.received_max = received_max ? received_max + place : nullptr;
    task.by_offset = pieces ? pieces + i * plan.diagonals() : nullptr;
    task.weighted = weighted ? weighted + place * vectors : nullptr;
    run_columns(task, scratch);
  });
  if (pieces && !failed)
    failed = run(heads, call.threads, (call.queries + call.keys) * (int64_t)sizeof(double),
                 [&](int64_t head, void* scratch) { add_offsets(call, out, plan, head, pieces, (double*)scratch); });
  free(pieces);
  return failed;
}

// Adds the whole second fold to `out`. Chunks of queries have column sums of their own, which are added in order.
static inline int all_columns(const RegardCall& call, const RegardColumns& out) {
  int64_t heads = call.batch * call.heads, size = heads * call.keys, chunks = 1;
  for (int64_t part = 0; part < call.masks; part++) {
    ColumnsPlan plan(call, out, call.mask[part].step);
    chunks = plan.chunks > chunks ? plan.chunks : chunks;
  }
  int64_t vectors = out.weighted ? out.vectors : 0;
  bool sums = out.received || out.received_max || out.weighted;
  float* pieces = sums && chunks > 1 ? (float*)calloc((size_t)((2 + vectors) * chunks * size), sizeof(float)) : nullptr;
  if (sums && chunks > 1 && !pieces) return NO_MEMORY;
  float* received = pieces ? pieces : out.received;
  float* received_max = pieces ? pieces + chunks * size : out.received_max;
  float* weighted = pieces && vectors ? pieces + 2 * chunks * size : out.weighted;
  int failed = DONE;
  for (int64_t part = 0; part < call.masks && !failed; part++)
    failed = columns_of_part(call, out, part, received, received_max, weighted);
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
        for (int64_t i = at * vectors; i < (at + 1) * vectors; i++) {
          double sum = 0;
          for (int64_t chunk = 0; chunk < chunks; chunk++) sum += weighted[chunk * size * vectors + i];
          out.weighted[i] += (float)sum;
        }
      }
    });
  free(pieces);
  return failed;
}

}  // namespace REGARD_ISA
