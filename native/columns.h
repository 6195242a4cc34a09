// The second fold: what belongs to the key. Lanes are keys, rows queries, and the rows' m and l are known, so every tile is
// finished at once: its weights are added (or maximized) into received mass and the cells of the map.
// Works on any mask of a call; the arrays it adds to are zero at the start.
#pragma once
#include "key_panel.h"

namespace REGARD_ISA {

constexpr int64_t KEPT_STRIDE = PANEL + LANES;  // of a kept row of weights, with room on the right

// The largest score of each row of a tile, in units of the scores, and log2 l with what rounding took from m. Apart: their
// sum would be rounded at the size of m, and all weights of a row with it.
struct Held {
  float m[TILE], rest[TILE], log2_scale;
};

// The weights of a vector of scores of one row: 2^(log2_scale · (score − m) − log2 l).
REGARD_INLINE vf weights_of(const float* scores, float m, float rest, float log2_scale) {
  return power2((load(scores) - splat(m)) * splat(log2_scale) - splat(rest));
}

// No weight is above 1, but log2 l was rounded.
REGARD_INLINE vf at_most_one(vf top) { return select(top > splat(1), splat(1), top); }

// Sum and largest of the weights of each lane, over rows [begin, end) of a tile. `bits` may
// be null: all pairs are allowed. A NaN reaches the sum alone. With KEEP the weights are written to `kept` too, row by row, 0
// where a row or a lane past the first `lanes` has none.
template <bool KEEP>
REGARD_INLINE void weigh(const float* scores, const Held& held, int64_t skip, const uint64_t* bits, const Runs& runs,
                         int64_t begin, int64_t end, vf* sum, vf* top, float* kept, int64_t lanes) {
  const float *m = held.m + skip, *rest = held.rest + skip;
  auto weight = [&](int64_t j, int c) __attribute__((always_inline)) {
    return weights_of(scores + j * PANEL + c * LANES, m[j], rest[j], held.log2_scale);
  };
  REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) sum[c] = top[c] = (vf){};
  if (!KEEP && !bits && runs.full()) {  // side by side, as each sum waits for the one before it
    for (int64_t j = begin; j < end; j++)
      REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) {
        vf p = weight(j, c);
        sum[c] += p;
        top[c] = maximum(top[c], p);
      }
  } else {
    REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) {
      int64_t first = begin > runs.from[c] ? begin : runs.from[c], last = end < runs.to[c] ? end : runs.to[c];
      int64_t left = lanes - c * LANES;
      uint64_t used = left >= LANES ? ~0ull : left > 0 ? (1ull << left) - 1 : 0;
      if constexpr (KEEP) {
        int64_t low = first < end ? first : end, high = last > low ? last : low;
        for (int64_t j = begin; j < low; j++) store(kept + j * KEPT_STRIDE + c * LANES, (vf){});
        for (int64_t j = high; j < end; j++) store(kept + j * KEPT_STRIDE + c * LANES, (vf){});
      }
      for (int64_t j = first; j < last; j++) {
        vf p = weight(j, c);
        if (bits) p = keep(bits[j] >> (c * LANES), p, (vf){});
        if constexpr (KEEP) store(kept + j * KEPT_STRIDE + c * LANES, keep(used, p, (vf){}));
        sum[c] += p;
        top[c] = maximum(top[c], p);
      }
    }
  }
  REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) top[c] = at_most_one(top[c]);
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

// Folds the queries from the r-th on of a full tile into cells of 2^SHIFT tokens a side, 2^SHIFT rows of cells at once: their
// lanes are joined together, where row by row most lanes of a vector would be joined for nothing.
template <int SHIFT>
static inline void fold_small_cells(const ColumnsTask& task, const Span& keys, const float* scores, const Held& held, int64_t skip,
                                    int64_t r, int64_t row, vf* total, vf* peak) {
  constexpr int SIDE = 1 << SHIFT, CELLS = LANES >> SHIFT;
  using Cells = typename CellsOf<CELLS>::vector;
  const RegardColumns& out = *task.out;
  int64_t head = task.head.batch * task.call->heads + task.head.head, at = (head * out.grid_q + row) * out.grid_k;
  const float *m = held.m + skip + r, *rest = held.rest + skip + r;
  for (int c = 0; c < PANEL_VECTORS; c++) {
    vf sum[SIDE], top[SIDE];
    REGARD_UNROLL for (int i = 0; i < SIDE; i++) {
      sum[i] = top[i] = (vf){};
      REGARD_UNROLL for (int j = i * SIDE; j < (i + 1) * SIDE; j++) {
        vf p = weights_of(scores + (r + j) * PANEL + c * LANES, m[j], rest[j], held.log2_scale);
        sum[i] += p;
        top[i] = maximum(top[i], p);
      }
      top[i] = at_most_one(top[i]);
      total[c] += sum[i];
      peak[c] = maximum(peak[c], top[i]);
    }
    join_vectors<SHIFT>(sum, top);
    alignas(64) float sums[LANES], tops[LANES];
    store(sums, sum[0]);
    store(tops, top[0]);
    int64_t cell = at + ((keys.first - out.first_key + c * LANES) >> SHIFT);
    REGARD_UNROLL for (int i = 0; i < SIDE; i++, cell += out.grid_k)
      add_cells<CELLS>(*(Cells*)(sums + i * CELLS), *(Cells*)(tops + i * CELLS), out.total + cell, out.peak + cell);
  }
}

// Folds queries of a full tile from the r-th on in that way. Returns how many: none where the cells are too large, or where
// these queries begin or end within one.
static inline int64_t fold_small_cells(const ColumnsTask& task, const Span& keys, const float* scores, const Held& held, int64_t skip,
                                       Span queries, int64_t r, vf* total, vf* peak) {
  int64_t at = queries.first + r - task.out->origin, side = (int64_t)1 << task.shift, row = at >> task.shift;
  if (at & (side - 1) || queries.count - r < side * side) return 0;
  if constexpr (LANES < 8) return 0;  // for older processors the size of the library counts for more
  switch (task.shift) {
    case 1: fold_small_cells<1>(task, keys, scores, held, skip, r, row, total, peak); return side * side;
    case 2: fold_small_cells<2>(task, keys, scores, held, skip, r, row, total, peak); return side * side;
#if REGARD_LANES == 16  // of fewer, one cell takes them all
    case 3: fold_small_cells<3>(task, keys, scores, held, skip, r, row, total, peak); return side * side;
#endif
  }
  return 0;
}

// Folds a tile of finished scores: row by row of cells where there is a map, all at once where there is none.
static inline void fold_columns(const ColumnsTask& task, KeyPanel* panel, const float* scores, const Held& held, int64_t skip,
                                const uint64_t* bits, const Runs& runs, Span queries, float* kept) {
  vf total[PANEL_VECTORS] = {}, peak[PANEL_VECTORS] = {};
  bool full = !kept && !bits && runs.full() && panel->keys.count == PANEL, small = full && task.out->total && task.step == 1;
  for (int64_t r = 0; r < queries.count;) {
    if (int64_t folded = small ? fold_small_cells(task, panel->keys, scores, held, skip, queries, r, total, peak) : 0) {
      r += folded;
      continue;
    }
    int64_t count = queries.count - r, row = 0;
    bool whole = false;
    if (task.out->total) {
      int64_t at = queries.first + r * queries.step - task.out->origin, cell = (int64_t)1 << task.shift;
      row = at >> task.shift;
      int64_t inside = ((row + 1) * cell - at + queries.step - 1) / queries.step;
      whole = queries.step == 1 && inside == cell && inside <= count;
      count = inside < count ? inside : count;
    }
    vf sum[PANEL_VECTORS], top[PANEL_VECTORS];
    if (kept) weigh<true>(scores, held, skip, bits, runs, r, r + count, sum, top, kept, panel->keys.count);
    else weigh<false>(scores, held, skip, bits, runs, r, r + count, sum, top, nullptr, 0);
    if (task.out->total) add_to_cells(task, panel, row, whole, sum, top);
    REGARD_UNROLL for (int c = 0; c < PANEL_VECTORS; c++) {
      total[c] += sum[c];
      peak[c] = maximum(peak[c], top[c]);
    }
    r += count;
  }
  for (int64_t x = 0; x < PANEL; x++) panel->received[x] += total[x / LANES][x % LANES];
  for (int c = 0; c < PANEL_VECTORS; c++) store(panel->largest + c * LANES, maximum(load(panel->largest + c * LANES), peak[c]));
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
  panel->cell_row = -1;
  pack_keys(task.head, keys, panel->packed, rows_space);
  for (int64_t x = 0; x < PANEL; x++) {
    panel->received[x] = 0;
    panel->largest[x] = 0;
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

}  // namespace REGARD_ISA
