// The products of the first fold over again, with keys along the lanes. They are the very same bits: a weight is
// e^(score − m)/l, and at large scores a rounding of its own would make another weight of it. Knows the three ways in which
// the first fold multiplies, nothing of what is made of the scores.
#pragma once
#include "few.h"

namespace REGARD_ISA {

enum Way { WIDE, NARROW, HALVES };  // panels in float32; few queries against a stream of keys; pairs of bfloat16 numbers

static inline Way way_of(const RegardCall& call) {
  if (call.queries <= FEW) return NARROW;
  return in_halves(call) ? HALVES : WIDE;
}

// A tile of queries, and memory for it.
struct Again {
  Way way;
  Rows query;              // in float32, but for HALVES
  const uint16_t* halves;  // as they are, for HALVES
  int64_t stride;
  float *space, *spread;
  uint16_t* tail;
};

static inline void take_again(const RegardCall& call, Space* space, Again* again) {
  again->way = way_of(call);
  again->space = space->take<float>(TILE * call.dim);
  again->spread = space->take<float>(again->way == NARROW ? FEW * padded(call.dim) : 0);
  again->tail = space->take<uint16_t>(again->way == HALVES ? tail_size(call.dim) : 0);
}

// A thread's tiles of AMX, where the products need them.
static inline bool needs_tiles(const RegardCall& call) { return way_of(call) == HALVES && call.halves > 1; }

static inline Rows queries_in_float(const Head& head, Span queries, float* space) {
  const RegardCall& call = *head.call;
  return rows_of(call.query, call.type, head.batch, head.head, queries.first - call.offset, queries.step, queries.count,
                 call.dim, space);
}

static inline void read_queries(const Head& head, Span queries, Again* again) {
  const RegardCall& call = *head.call;
  if (again->way == HALVES) {
    again->halves = halves_of(call.query, head.batch, head.head, queries.first - call.offset);
    again->stride = queries.step * call.query.row;
    return;
  }
  again->query = queries_in_float(head, queries, again->space);
  for (int64_t r = 0; again->way == NARROW && r < queries.count; r++)
    spread_row(again->query.data + r * again->query.stride, call.dim, again->spread + r * padded(call.dim));
}

// A panel of keys, [dim][PANEL]; a NARROW call reads its keys in place.
static inline void pack_keys(const Head& head, Span keys, float* packed, float* space) {
  const RegardCall& call = *head.call;
  Way way = way_of(call);
  if (way == HALVES) {
    pack_pairs(halves_of(call.key, head.batch, head.kv_head, keys.first), keys.step * call.key.row, keys.count, call.dim / 2,
               (uint32_t*)packed);
  } else if (way == WIDE) {
    Rows rows = rows_of(call.key, call.type, head.batch, head.kv_head, keys.first, keys.step, keys.count, call.dim, space);
    pack_panel(rows.data, rows.stride, keys.count, call.dim, 1, packed);
  }
}

template <class T>
static inline void narrow_products(const Head& head, Span keys, const float* ours, int64_t rows, float* scores) {
  const RegardView& key = head.call->key;
  const T* first = (const T*)key.data + head.batch * key.batch + head.kv_head * key.head + keys.first * key.row;
  Stream<T> stream = stream_of(first, keys.step * key.row, head.call->dim);
  for (int64_t j = 0; j < keys.count; j += LANES)
    multiply_rows<8>(ours, rows, stream.from(j), keys.count - j, scores + j, PANEL);
}

// scores[count][PANEL] of the queries at hand from the `skip`-th on; where `runs` needs no vector they may be left as they
// were. Room for TILE rows is written to.
static inline void products_again(const Head& head, const Again& again, const Runs& runs, Span keys, const float* packed,
                                  int64_t skip, int64_t count, float* scores) {
  const RegardCall& call = *head.call;
  if (again.way == WIDE)
    return score_runs(runs, again.query.data + skip * again.query.stride, again.query.stride, packed, call.dim, scores);
  if (again.way == HALVES)
    return score_halves(call.halves > 1, again.halves + skip * again.stride, again.stride, count, (const uint32_t*)packed,
                        call.dim, again.tail, scores);
  const float* ours = again.spread + skip * padded(call.dim);
  if (call.type == REGARD_BFLOAT16) narrow_products<Bfloat16>(head, keys, ours, count, scores);
  else if (call.type == REGARD_FLOAT16) narrow_products<Float16>(head, keys, ours, count, scores);
  else narrow_products<float>(head, keys, ours, count, scores);
}

}  // namespace REGARD_ISA
