// Tasks of the backward pass. Each owns blocks of keys and so the gradients of key and value; the query's gradient, and
// that of a bias without an axis of keys, are separate for each range of keys and added in order.
#pragma once
#include "backward.h"
#include "plan.h"

namespace REGARD_ISA {

constexpr int64_t LEAST_TASKS = 16;          // tasks: fewer are split along the keys
constexpr int64_t MOST_APART = 1ll << 28;    // numbers that the query's gradient may take in all ranges together
constexpr int64_t KEY_BLOCK = VJP_PANELS * PANEL;

// What is done by whom, from sizes alone. A task takes every `ranges`-th block of keys, which evens out a causal mask; a
// bias that broadcasts over heads or over the batch keeps all of them in one task.
struct VjpPlan {
  int64_t batches, heads, ranges;  // batch rows and kv_heads that are apart
  float* query;                    // ranges 1, 2, …: the query's gradient, one after another
  double* bias;
  int64_t query_count, bias_count;  // numbers in one range; 0: all write to one place
};

static inline VjpPlan vjp_plan_of(const RegardCall& call, const RegardGradient& gradient) {
  VjpPlan plan = {call.batch, call.kv_heads, 1, nullptr, nullptr, 0, 0};
  if (gradient.bias && gradient.bias_stride[0] == 0) plan.batches = 1;
  if (gradient.bias && gradient.bias_stride[1] == 0) plan.heads = 1;
  int64_t tasks = plan.batches * plan.heads, blocks = (call.keys + KEY_BLOCK - 1) / KEY_BLOCK;
  plan.ranges = (LEAST_TASKS + tasks - 1) / tasks;
  if (plan.ranges > blocks) plan.ranges = blocks;
  if (gradient.query) plan.query_count = call.batch * call.heads * call.queries * call.dim;
  int64_t fitting = MOST_APART / (plan.query_count + 1) + 1;
  if (plan.ranges > fitting) plan.ranges = fitting;
  bool owned = call.bias_kind == REGARD_DENSE && gradient.bias_stride[3] != 0;
  if (gradient.bias && !owned) plan.bias_count = gradient.bias_count;
  return plan;
}

static inline int vjp_part(const RegardCall& call, const RegardWant& want, const RegardGradient& gradient,
                            const VjpPlan& plan, int64_t part) {
  const RegardMask* mask = call.mask + part;
  int64_t bytes = vjp_space(call, want, gradient), tasks = plan.batches * plan.heads * plan.ranges;
  return run(tasks, call.threads, bytes, [&](int64_t i, void* scratch) {
    int64_t range = i % plan.ranges, first_head = i / plan.ranges % plan.heads, first_batch = i / plan.ranges / plan.heads;
    VjpTask task = {};
    task.call = &call;
    task.want = &want;
    task.gradient = &gradient;
    task.mask = mask;
    task.step = mask->step;
    task.query = range && gradient.query ? plan.query + (range - 1) * plan.query_count : gradient.query;
    task.bias = range && plan.bias_count ? plan.bias + (range - 1) * plan.bias_count : gradient.bias;
    int64_t block = 0;
    for (task.residue = 0; task.residue < task.step; task.residue++) {
      int64_t keys = keys_in(call, task.step, task.residue);
      for (task.first = 0; task.first < keys; task.first += KEY_BLOCK, block++) {
        if (block % plan.ranges != range) continue;
        task.count = keys - task.first < KEY_BLOCK ? keys - task.first : KEY_BLOCK;
        for (task.batch = first_batch; task.batch < call.batch; task.batch += plan.batches)
          for (task.kv_head = first_head; task.kv_head < call.kv_heads; task.kv_head += plan.heads) run_vjp(task, scratch);
      }
    }
  });
}

// sums += pieces, in the order of the ranges.
template <class Number>
static inline void add_ranges(const RegardCall& call, Number* sums, const Number* pieces, int64_t count, int64_t ranges) {
  constexpr int64_t chunk = 1 << 14;
  run((count + chunk - 1) / chunk, call.threads, 64, [&](int64_t i, void*) {
    int64_t end = (i + 1) * chunk < count ? (i + 1) * chunk : count;
    for (int64_t range = 1; range < ranges; range++)
      for (int64_t x = i * chunk; x < end; x++) sums[x] += pieces[(range - 1) * count + x];
  });
}

static inline int all_gradients(const RegardCall& call, const RegardWant& want, const RegardGradient& gradient) {
  VjpPlan plan = vjp_plan_of(call, gradient);
  int64_t extra = plan.ranges - 1;
  if (extra > 0 && plan.query_count) plan.query = (float*)calloc((size_t)(extra * plan.query_count), sizeof(float));
  if (extra > 0 && plan.bias_count) plan.bias = (double*)calloc((size_t)(extra * plan.bias_count), sizeof(double));
  bool short_of = extra > 0 && ((plan.query_count && !plan.query) || (plan.bias_count && !plan.bias));
  int failed = short_of ? NO_MEMORY : DONE;
  for (int64_t part = 0; part < call.masks && !failed; part++) failed = vjp_part(call, want, gradient, plan, part);
  if (!failed && extra > 0 && plan.query_count)
    add_ranges(call, gradient.query, plan.query, plan.query_count, plan.ranges);
  if (!failed && extra > 0 && plan.bias_count)
    add_ranges(call, gradient.bias, plan.bias, plan.bias_count, plan.ranges);
  free(plan.query);
  free(plan.bias);
  return failed;
}

}  // namespace REGARD_ISA
