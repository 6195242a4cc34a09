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

}  // namespace REGARD_ISA
