// The gradient of the bias's own tensor from the gradients of one tile's scores (lanes are keys). Knows where each number
// of a bias is held, not how those gradients come about.
#pragma once
#include "scores.h"

namespace REGARD_ISA {

// A dense bias; an axis along which it broadcasts has stride 0, and is summed over.
static inline void add_dense(const Head& head, const int64_t* stride, Span keys, Span queries, const float* grad, double* sums) {
  double* at = sums + head.batch * stride[0] + head.head * stride[1] + keys.first * stride[3];
  at += (queries.first - head.call->offset) * stride[2];
  for (int64_t r = 0; r < queries.count; r++, at += queries.step * stride[2])
    for (int64_t x = 0; x < keys.count; x++) at[x * keys.step * stride[3]] += grad[r * PANEL + x];
}

// A bias that depends on k − q alone: the gradients are summed along each diagonal of the tile first.
static inline void add_by_distance(const Head& head, const int64_t* stride, Span keys, Span queries, const float* grad,
                                   double* sums) {
  const RegardCall& call = *head.call;
  float diagonals[TILE + PANEL] = {};  // as in fill_distances: diagonals[lane − row + rows.count − 1]
  for (int64_t r = 0; r < queries.count; r++)
    for (int64_t x = 0; x < keys.count; x++) diagonals[x - r + queries.count - 1] += grad[r * PANEL + x];
  double* head_sums = sums + head.head * stride[1];
  for (int64_t i = 0; i < keys.count + queries.count - 1; i++) {
    int64_t distance = keys.first - queries.first + keys.step * (i - queries.count + 1), reach = call.bias_reach;
    if (call.bias_kind == REGARD_ALIBI) *head_sums -= (double)(distance < 0 ? -distance : distance) * diagonals[i];
    else head_sums[reach + (distance < -reach ? -reach : distance > reach ? reach : distance)] += diagonals[i];
  }
}

static inline void add_bias_gradient(const Head& head, const RegardGradient& gradient, Span keys, Span queries,
                                     const float* grad, double* sums) {
  if (head.call->bias_kind == REGARD_DENSE) add_dense(head, gradient.bias_stride, keys, queries, grad, sums);
  else add_by_distance(head, gradient.bias_stride, keys, queries, grad, sums);
}

}  // namespace REGARD_ISA
