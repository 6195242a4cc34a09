// A panel of keys in the second fold, and the row of cells of the map to which its lanes are being added.
#pragma once
#include "again.h"
#include "plan.h"

namespace REGARD_ISA {

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
  int64_t cell_row;               // counted from the first one of the map; −1: none
};

// The lanes of a vector in order, to make other orders of.
template <int... I>
struct Order {};
#if REGARD_LANES == 16
using AllLanes = Order<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
#elif REGARD_LANES == 8
using AllLanes = Order<0, 1, 2, 3, 4, 5, 6, 7>;
#else
using AllLanes = Order<0, 1, 2, 3>;
#endif

// Lanes that differ in the bits of AWAY change places.
template <int AWAY, int... I>
REGARD_INLINE vf swapped(vf x, Order<I...>) { return __builtin_shufflevector(x, x, (I ^ AWAY)...); }

// Every EACH-th lane, in front.
template <int EACH, int... I>
REGARD_INLINE vf thinned(vf x, Order<I...>) { return __builtin_shufflevector(x, x, (I * EACH % LANES)...); }

// Sums and maxima of 2^SHIFT neighboring lanes, in front; of all lanes where they are fewer.
template <int SHIFT>
REGARD_INLINE void join_lanes(vf* sum, vf* top) {
  if constexpr (SHIFT > 0) {
    *sum += swapped<1>(*sum, AllLanes());
    *top = maximum(*top, swapped<1>(*top, AllLanes()));
  }
  if constexpr (SHIFT > 1) {
    *sum += swapped<2>(*sum, AllLanes());
    *top = maximum(*top, swapped<2>(*top, AllLanes()));
  }
  if constexpr (SHIFT > 2 && LANES > 4) {
    *sum += swapped<4>(*sum, AllLanes());
    *top = maximum(*top, swapped<4>(*top, AllLanes()));
  }
  if constexpr (SHIFT > 3 && LANES > 8) {
    *sum += swapped<8>(*sum, AllLanes());
    *top = maximum(*top, swapped<8>(*top, AllLanes()));
  }
  if constexpr (SHIFT > 0 && 1 << SHIFT < LANES) {
    *sum = thinned<1 << SHIFT>(*sum, AllLanes());
    *top = thinned<1 << SHIFT>(*top, AllLanes());
  }
}

// Of two vectors, one after the other: the lanes 0, 2, 4, … and the lanes 1, 3, 5, ….
template <int... I>
REGARD_INLINE vf evens(vf a, vf b, Order<I...>) { return __builtin_shufflevector(a, b, (2 * I)...); }
template <int... I>
REGARD_INLINE vf odds(vf a, vf b, Order<I...>) { return __builtin_shufflevector(a, b, (2 * I + 1)...); }

// Sums and maxima of 2^SHIFT neighboring lanes of 2^SHIFT vectors, all in the first: those of one vector after those of another.
template <int SHIFT>
REGARD_INLINE void join_vectors(vf* sum, vf* top) {
  REGARD_UNROLL for (int left = (1 << SHIFT) / 2; left > 0; left /= 2)
    REGARD_UNROLL for (int i = 0; i < left; i++) {
      vf a = sum[2 * i], b = sum[2 * i + 1], x = top[2 * i], y = top[2 * i + 1];
      sum[i] = evens(a, b, AllLanes()) + odds(a, b, AllLanes());
      top[i] = maximum(evens(x, y, AllLanes()), odds(x, y, AllLanes()));
    }
}

// Adds to one number of a sum and one of a maximum; the maximum is NaN where the sum is.
REGARD_INLINE void add_cell(float total, float peak, float* to_total, float* to_peak) {
  float sum = *to_total + total;
  *to_total = sum;
  *to_peak = (peak > *to_peak ? peak : *to_peak) + (sum - sum);  // no branch: which is larger cannot be foretold
}

// The same for COUNT neighboring cells.
template <int COUNT>
struct CellsOf {
  typedef float vector __attribute__((vector_size(COUNT * 4), aligned(4)));
};
template <int COUNT>
REGARD_INLINE void add_cells(typename CellsOf<COUNT>::vector total, typename CellsOf<COUNT>::vector peak, float* to_total,
                             float* to_peak) {
  using Cells = typename CellsOf<COUNT>::vector;
  Cells sum = *(Cells*)to_total + total, old = *(Cells*)to_peak;
  *(Cells*)to_total = sum;
  *(Cells*)to_peak = (peak > old ? peak : old) + (sum - sum);
}

// Adds a vector of one row of cells, whose first `left` lanes are keys, to the cells from the first key's on. Not by whole
// vectors: a cell past the last belongs to another task.
template <int SHIFT>
REGARD_INLINE void add_lanes(vf sum, vf top, int64_t left, float* to_total, float* to_peak) {
  constexpr int64_t EACH = LANES >> SHIFT > 1 ? LANES >> SHIFT : 1;
  int64_t cells = EACH;
  if (left < LANES) {
    cells = ((left - 1) >> SHIFT) + 1;
    sum = keep((1ull << left) - 1, sum, (vf){});
    top = keep((1ull << left) - 1, top, (vf){});
  }
  join_lanes<SHIFT>(&sum, &top);
  if constexpr (EACH == 4)  // not by way of memory, which is much slower
    if (cells == 4) {
      add_cells<4>(__builtin_shufflevector(sum, sum, 0, 1, 2, 3), __builtin_shufflevector(top, top, 0, 1, 2, 3), to_total, to_peak);
      return;
    }
  for (int64_t i = 0; i < cells; i++) add_cell(sum[i], top[i], to_total + i, to_peak + i);
}

// Adds to the cells of one row what a panel's lanes got from its queries: sums and largest weights. All keys of a vector lie
// in one cell of 2^SHIFT tokens where SHIFT is the largest.
template <int SHIFT>
static inline void add_row(const ColumnsTask& task, const Span& keys, float* total, float* peak, const vf* sum, const vf* top) {
  REGARD_UNROLL for (int64_t c = 0; c < PANEL_VECTORS; c++) {
    int64_t left = keys.count - c * LANES, cell = (keys.first - task.out->first_key + c * LANES) >> task.shift;
    if (left > 0) add_lanes<SHIFT>(sum[c], top[c], left, total + cell, peak + cell);
  }
}

static inline void add_row(const ColumnsTask& task, const Span& keys, int64_t row, const vf* sum, const vf* top) {
  const RegardColumns& out = *task.out;
  int64_t head = task.head.batch * task.call->heads + task.head.head, at = (head * out.grid_q + row) * out.grid_k;
  float *total = out.total + at, *peak = out.peak + at;
  if (task.step > 1) {
    for (int64_t x = 0; x < keys.count; x++) {
      int64_t cell = (keys.first + x * keys.step - out.first_key) >> task.shift;
      add_cell(sum[x / LANES][x % LANES], top[x / LANES][x % LANES], total + cell, peak + cell);
    }
    return;
  }
  switch (task.shift) {
    case 0: return add_row<0>(task, keys, total, peak, sum, top);
    case 1: return add_row<1>(task, keys, total, peak, sum, top);
    case 2: return add_row<2>(task, keys, total, peak, sum, top);
    case 3: return add_row<3>(task, keys, total, peak, sum, top);
    default: return add_row<4>(task, keys, total, peak, sum, top);
  }
}

// Empties the panel's row of cells into the map.
static inline void flush_cells(const ColumnsTask& task, KeyPanel* panel) {
  if (panel->cell_row < 0) return;
  vf sum[PANEL_VECTORS], top[PANEL_VECTORS];
  for (int c = 0; c < PANEL_VECTORS; c++) {
    sum[c] = load(panel->cell_total + c * LANES);
    top[c] = load(panel->cell_peak + c * LANES);
  }
  add_row(task, panel->keys, panel->cell_row, sum, top);
  panel->cell_row = -1;
}

// Adds what queries of one row of cells gave to the panel's lanes; `whole` where they are all of them.
REGARD_INLINE void add_to_cells(const ColumnsTask& task, KeyPanel* panel, int64_t row, bool whole, const vf* sum, const vf* top) {
  if (row != panel->cell_row) {
    flush_cells(task, panel);
    if (whole) return add_row(task, panel->keys, row, sum, top);
    panel->cell_row = row;
    for (int c = 0; c < PANEL_VECTORS; c++) {
      store(panel->cell_total + c * LANES, sum[c]);
      store(panel->cell_peak + c * LANES, top[c]);
    }
    return;
  }
  for (int c = 0; c < PANEL_VECTORS; c++) {
    store(panel->cell_total + c * LANES, load(panel->cell_total + c * LANES) + sum[c]);
    store(panel->cell_peak + c * LANES, maximum(load(panel->cell_peak + c * LANES), top[c]));
  }
}

}  // namespace REGARD_ISA
