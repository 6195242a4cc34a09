// Tasks of the folds and the threads that run them. What a task is depends on sizes alone, never on the number of
// threads, so results are the same bits for any of them.
#pragma once
#include <stdlib.h>

#include "few.h"

namespace REGARD_ISA {

constexpr int64_t ENOUGH = 48;       // tasks: for fewer, blocks are made smaller
constexpr int64_t FEWEST = 32;       // tasks: fewer are split along the keys
constexpr int64_t LEAST_KEYS = 1024;  // in a stretch of keys

enum { DONE = 0, NO_MEMORY = 1 };

// Runs task(i, scratch) for every i, the last first: late queries of a causal mask have the most keys.
template <class Task>
static inline int run(int64_t tasks, int64_t threads, int64_t scratch_bytes, Task task) {
  int failed = DONE;
#pragma omp parallel num_threads((int)(threads < tasks ? threads : tasks > 0 ? tasks : 1))
  {
    void* scratch = aligned_alloc(64, (size_t)((scratch_bytes + 63) / 64 * 64));
    if (!scratch) {
#pragma omp atomic write
      failed = NO_MEMORY;
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = tasks - 1; i >= 0; i--)
      if (scratch) task(i, scratch);
    free(scratch);
  }
  return failed;
}

// Where blocks of the residue classes of a step lie among the tasks of one head.
struct Blocks {
  const RegardCall* call;
  int64_t step, size;
  int64_t count() const {
    int64_t total = 0;
    for (int64_t c = 0; c < step; c++) total += (queries_in(*call, step, c) + size - 1) / size;
    return total;
  }
  void find(int64_t at, int64_t* residue, int64_t* first, int64_t* length) const {
    for (int64_t c = 0; c < step; c++) {
      int64_t have = queries_in(*call, step, c), blocks = (have + size - 1) / size;
      if (at < blocks) {
        *residue = c;
        *first = at * size;
        *length = have - *first < size ? have - *first : size;
        return;
      }
      at -= blocks;
    }
  }
};

static inline int rows_of_part(const RegardCall& call, const RegardWant& want, const RegardState& state, int64_t part,
                               int64_t panels, int64_t chunks, bool add) {
  const RegardMask* mask = call.mask + part;
  Blocks blocks = {&call, mask->step, panels * PANEL};
  int64_t each = blocks.count();
  return run(call.batch * call.heads * each * chunks, call.threads, rows_space(call, want), [&](int64_t i, void* scratch) {
    int64_t chunk = i % chunks, block = i / chunks % each, head = i / chunks / each;
    RowsTask task = {};
    task.call = &call;
    task.want = &want;
    task.head = head_of(&call, mask, head / call.heads, head % call.heads, true);
    task.step = mask->step;
    blocks.find(block, &task.residue, &task.first, &task.count);
    int64_t keys = keys_in(call, task.step, task.residue), size = (keys + chunks - 1) / chunks;
    task.begin = chunk * size < keys ? chunk * size : keys;
    task.end = task.begin + size < keys ? task.begin + size : keys;
    task.state = state;
    task.row_stride = chunks;
    task.chunk = chunk;
    task.add = add;
    run_rows(task, scratch);
  });
}

// The same with keys along the lanes, for all heads that share them.
static inline int few_rows_of_part(const RegardCall& call, const RegardWant& want, const RegardState& state, int64_t part,
                                   int64_t chunks, bool add) {
  const RegardMask* mask = call.mask + part;
  Blocks blocks = {&call, mask->step, FEW};
  int64_t each = blocks.count(), group = call.heads / call.kv_heads;
  int64_t most = PANEL / call.queries < group ? PANEL / call.queries : group, sets = (group + most - 1) / most;
  int64_t tasks = call.batch * call.kv_heads * sets * each * chunks;
  return run(tasks, call.threads, few_space(call, want), [&](int64_t i, void* scratch) {
    int64_t chunk = i % chunks, block = i / chunks % each, set = i / chunks / each % sets, kv_head = i / chunks / each / sets;
    int64_t head = kv_head % call.kv_heads * group + set * most, left = group - set * most;
    RowsTask task = {};
    task.call = &call;
    task.want = &want;
    task.head = head_of(&call, mask, kv_head / call.kv_heads, head, false);
    task.step = mask->step;
    blocks.find(block, &task.residue, &task.first, &task.count);
    int64_t keys = keys_in(call, task.step, task.residue), size = (keys + chunks - 1) / chunks;
    task.begin = chunk * size < keys ? chunk * size : keys;
    task.end = task.begin + size < keys ? task.begin + size : keys;
    task.state = state;
    task.row_stride = chunks;
    task.chunk = chunk;
    task.add = add;
    run_few(task, left < most ? left : most, scratch);
  });
}

// Memory for a state of `rows` rows; false where there is none. All pieces lie in one allocation, at *memory.
static inline bool allocate(const RegardWant& want, const RegardState& like, int64_t rows, int64_t value_dim,
                            RegardState* state, char** memory) {
  *memory = nullptr;
  for (int pass = 0; pass < 2; pass++) {
    Space space = {*memory, 0};
    state->m = space.take<double>(rows);
    state->l = space.take<double>(rows);
    if (like.u) state->u = space.take<double>(rows);
    if (like.r) state->r = space.take<double>(rows);
    if (like.c) state->c = space.take<double>(rows * want.columns);
    if (like.o) state->o = space.take<float>(rows * value_dim);
    if (like.count) state->count = space.take<int64_t>(rows);
    if (like.least) state->least = space.take<double>(rows);
    if (like.top_scores) state->top_scores = space.take<double>(rows * want.top);
    if (like.top_keys) state->top_keys = space.take<int64_t>(rows * want.top);
    if (pass == 0 && !(*memory = (char*)aligned_alloc(64, (size_t)space.used + 64))) return false;
  }
  return true;
}

static inline int all_rows(const RegardCall& call, const RegardWant& want, const RegardState& state) {
  int64_t rows = call.batch * call.heads * call.queries;
  bool few = call.queries <= FEW;
  int64_t panels = PANELS, chunks = 1;
  auto blocks = [&] { return (call.queries + panels * PANEL - 1) / (panels * PANEL); };
  while (panels > 1 && call.batch * call.heads * blocks() < ENOUGH) panels /= 2;
  int64_t tasks = call.batch * (few ? call.kv_heads : call.heads * blocks());
  if (tasks < FEWEST && call.keys >= 2 * LEAST_KEYS) {
    int64_t most = call.keys / LEAST_KEYS, some = (ENOUGH + tasks - 1) / tasks;
    chunks = some < most ? some : most;
  }
  RegardState pieces = {};
  char* memory = nullptr;
  if (chunks > 1 && !allocate(want, state, rows * chunks, call.value_dim, &pieces, &memory)) return NO_MEMORY;
  int failed = DONE;
  for (int64_t part = 0; part < call.masks && !failed; part++)
    failed = few ? few_rows_of_part(call, want, chunks > 1 ? pieces : state, part, chunks, part > 0)
                 : rows_of_part(call, want, chunks > 1 ? pieces : state, part, panels, chunks, part > 0);
  if (chunks > 1 && !failed)
    failed = run(rows, call.threads, 64, [&](int64_t i, void*) {
      Row to = row_of(state, i, want.columns, call.value_dim, want.top);
      clear(to, want.columns, call.value_dim, want.top);
      for (int64_t chunk = 0; chunk < chunks; chunk++) {
        Row from = row_of(pieces, i * chunks + chunk, want.columns, call.value_dim, want.top);
        float old_factor, new_factor;
        merge(to, from, want.columns, want.top, &old_factor, &new_factor);
        for (int64_t d = 0; to.o && d < call.value_dim; d++) to.o[d] = to.o[d] * old_factor + from.o[d] * new_factor;
      }
    });
  free(memory);
  return failed;
}

}  // namespace REGARD_ISA
