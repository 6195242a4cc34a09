// Which vectors of a panel a partial tile needs, eight rows at a time: at the edge of a mask whole vectors are blocked, and
// their products need not be computed.
#pragma once
#include "load.h"

namespace REGARD_ISA {

constexpr int64_t GROUP = 8;  // rows that share their vectors

// Rows [begin, end) of a tile, of which vectors [first, first + vectors) are needed.
struct Run {
  int64_t begin, end;
  int first, vectors;
};
struct Runs {
  Run run[TILE / GROUP];
  int count;
  int64_t from[PANEL_VECTORS], to[PANEL_VECTORS];  // rows that each vector needs: the first, and past the last
  bool full() const { return count == 1 && run[0].vectors == PANEL_VECTORS; }
};

static inline void append(Runs* runs, int64_t begin, int64_t end, int first, int vectors) {
  Run* last = runs->count ? &runs->run[runs->count - 1] : nullptr;
  if (last && last->end == begin && last->first == first && last->vectors == vectors) last->end = end;
  else runs->run[runs->count++] = {begin, end, first, vectors};
}

// The runs of `rows` rows of a tile: of the first `lanes` lanes, or of those whose bits are set.
static inline Runs runs_of(int64_t rows, int64_t lanes, const uint64_t* bits) {
  Runs runs = {};
  int used = (int)((lanes + LANES - 1) / LANES);
  if (!bits) {
    runs.run[0] = {0, rows, 0, used};
    runs.count = rows > 0;
    for (int c = 0; c < used; c++) runs.to[c] = rows;
    return runs;
  }
  for (int64_t begin = 0; begin < rows; begin += GROUP) {
    int64_t end = begin + GROUP < rows ? begin + GROUP : rows;
    uint64_t seen = 0;
    for (int64_t r = begin; r < end; r++) seen |= bits[r];
    if (!seen) continue;
    int first = __builtin_ctzll(seen) / LANES, last = (63 - __builtin_clzll(seen)) / LANES;
    append(&runs, begin, end, first, last - first + 1);
    for (int c = first; c <= last; c++) {
      if (runs.to[c] == 0) runs.from[c] = begin;
      runs.to[c] = end;
    }
  }
  return runs;
}

template <int VECTORS>
static inline void score_run(const Run& run, const float* rows, int64_t stride, const float* panel, int64_t dim, float* scores) {
  int64_t r = run.begin;
  for (; r + BLOCK <= run.end; r += BLOCK)
    product_rows<BLOCK, VECTORS>(rows + r * stride, stride, panel + run.first * LANES, dim, scores + r * PANEL + run.first * LANES);
  Rest<BLOCK - 1>::rows(run.end - r, rows + r * stride, stride, panel, dim, scores + r * PANEL);
}

// score_tile for the runs of a tile; other scores are left as they were.
static inline void score_runs(const Runs& runs, const float* rows, int64_t stride, const float* panel, int64_t dim, float* scores) {
  for (int i = 0; i < runs.count; i++) switch (runs.run[i].vectors) {
    case 1: score_run<1>(runs.run[i], rows, stride, panel, dim, scores); break;
    case 2: score_run<2>(runs.run[i], rows, stride, panel, dim, scores); break;
    default: score_run<PANEL_VECTORS>(runs.run[i], rows, stride, panel, dim, scores);
  }
}

// add_product for the runs of a tile, whose weights are 0 elsewhere.
static inline void add_runs(const Runs& runs, const float* rows, int64_t stride, const float* weights, int64_t dim,
                            const float* factor, float* sums) {
  if (runs.full())
    return add_product(rows + runs.run[0].begin * stride, stride, runs.run[0].end - runs.run[0].begin,
                       weights + runs.run[0].begin * PANEL, dim, factor, sums);
  if (factor)
    for (int64_t d = 0; d < dim; d++)
      for (int c = 0; c < PANEL_VECTORS; c++) {
        float* at = sums + d * PANEL + c * LANES;
        store(at, load(at) * load(factor + c * LANES));
      }
  int64_t d = 0;
  for (; d + BLOCK <= dim; d += BLOCK)
    for (int i = 0; i < runs.count; i++) {
      const Run& run = runs.run[i];
      const float *from = rows + run.begin * stride + d, *weight = weights + run.begin * PANEL + run.first * LANES;
      float* to = sums + d * PANEL + run.first * LANES;
      int64_t count = run.end - run.begin;
      if (run.vectors == 1) product_sums<BLOCK, 1>(from, stride, weight, count, nullptr, to);
      else if (run.vectors == 2) product_sums<BLOCK, 2>(from, stride, weight, count, nullptr, to);
      else product_sums<BLOCK>(from, stride, weight, count, nullptr, to);
    }
  for (int i = 0; i < runs.count; i++) {
    const Run& run = runs.run[i];
    Rest<BLOCK - 1>::sums(dim - d, rows + run.begin * stride + d, stride, weights + run.begin * PANEL, run.end - run.begin,
                          nullptr, sums + d * PANEL);
  }
}

}  // namespace REGARD_ISA
