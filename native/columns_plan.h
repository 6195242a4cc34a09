// Tasks of the second fold: along cells, so that none is shared, and what several of them gave to one key added up.
#pragma once
#include "columns.h"

namespace REGARD_ISA {

constexpr int64_t CELL_SIDE = 16;       // keys of a task: a multiple of it, so that panels of every build are full
constexpr int64_t ENOUGH_RANGES = 16;   // tasks: fewer are split along the queries
constexpr int64_t LEAST_QUERIES = 512;  // in a chunk of queries

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
