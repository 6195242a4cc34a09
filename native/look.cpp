// Both folds and the reading of the rows' statistics in one call: small calls spend their time on being asked.
#include "look.h"

#include <cmath>

namespace {

constexpr int64_t ENOUGH = 1024;  // rows: for fewer, threads cost more than they save

void put(float* to, int64_t at, double value) {
  if (to) to[at] = (float)value;
}

// One row, as regard.statistics reads it from a state without a learned sink.
void read_row(const RegardWant& want, const RegardState& state, const RegardLook& look, int64_t rows, int64_t at) {
  const double m = state.m[at], l = state.l[at];
  const bool empty = l == 0;
  const double total = empty ? 1.0 : l, log = std::log(total);
  look.log_l[at] = empty ? -HUGE_VAL : log;
  put(look.lse, at, m + log);
  if (state.u) {
    const double entropy = log - state.u[at] / total;
    put(look.entropy, at, entropy);
    put(look.effective_keys, at, empty ? 0.0 : std::exp(entropy));
  }
  if (state.r) put(look.sum_squares, at, state.r[at] / (total * total));
  put(look.max_weight, at, empty ? 0.0 : (1.0 + (m - m)) / total);  // e^0, and NaN where m is no number
  if (state.least) put(look.min_weight, at, empty ? 0.0 : std::exp(state.least[at] - m) / total);
  if (look.argmax) look.argmax[at] = l != l ? -1 : state.top_keys[at * want.top];
  for (int64_t i = 0; i < want.columns; i++)
    look.columns[i * rows + at] = (float)(state.c[at * want.columns + i] / total);
  if (look.spread) {
    const double* c = state.c + at * want.columns;
    const double mean = c[want.position] / total, variance = c[want.square] / total - mean * mean;
    put(look.spread, at, variance <= 0 ? 0.0 : std::sqrt(variance));
  }
}

// The output of one row, from the weighted sum of values in its place.
void read_output(const RegardCall& call, const RegardState& state, int64_t at) {
  const bool empty = state.l[at] == 0;
  const float total = (float)state.l[at];
  float* row = state.o + at * call.value_dim;
  for (int64_t d = 0; d < call.value_dim; d++) row[d] = empty ? 0.0f : row[d] / total;
}

// Positions may be negative.
int64_t floor_mod(int64_t a, int64_t b) { return (a % b + b) % b; }

// How many queries of each row of cells attend something.
void count_rows(const RegardCall& call, const RegardState& state, const RegardColumns& columns, int64_t* counts) {
  const int64_t lanes = call.batch * call.heads, inside = floor_mod(call.offset, columns.cell);
  for (int64_t i = 0; i < lanes * columns.grid_q; i++) counts[i] = 0;
  for (int64_t lane = 0; lane < lanes; lane++)
    for (int64_t q = 0; q < call.queries; q++)
      counts[lane * columns.grid_q + (inside + q) / columns.cell] += state.l[lane * call.queries + q] != 0;
}

}  // namespace

int regard_look_with(const RegardKernels& kernels, const RegardCall* call, const RegardWant* want, const RegardState* state,
                  const RegardColumns* columns, const RegardLook* look) {
  if (const int failed = kernels.rows(call, want, state)) return failed;
  const int64_t rows = call->batch * call->heads * call->queries;
#pragma omp parallel for num_threads((int)call->threads) if (rows >= ENOUGH)
  for (int64_t at = 0; at < rows; at++) {
    read_row(*want, *state, *look, rows, at);
    if (state->o) read_output(*call, *state, at);
  }
  if (columns->cell) count_rows(*call, *state, *columns, look->cell_rows);
  const bool second = columns->received || columns->received_max || columns->cell || columns->by_offset;
  return second ? kernels.columns(call, columns) : 0;
}
