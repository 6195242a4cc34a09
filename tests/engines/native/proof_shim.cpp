// Lets the tests spoil one number of what a build gives, and ask whether its proof sees it. The functions are those of the
// library, which is loaded already.
#include "kernels.h"

typedef int (*RowsFunction)(int, const RegardCall*, const RegardWant*, const RegardState*);
typedef int (*ColumnsFunction)(int, const RegardCall*, const RegardColumns*);
typedef int (*GradientsFunction)(int, const RegardCall*, const RegardWant*, const RegardGradient*);

static RowsFunction library_rows;
static ColumnsFunction library_columns;
static GradientsFunction library_gradients;
static int number, spoiled;
static int64_t only_type, only_queries;

enum { NOTHING, OUTPUT, LSE, ENTROPY, SQUARES, COLUMN, COUNT, RECEIVED, RECEIVED_MAX, BY_OFFSET, WEIGHTED, QUERY, KEY, VALUE, A_NAN };

static bool now(int what, const RegardCall* call) {
  return what == spoiled && call->type == only_type && (call->queries < 5) == only_queries < 5;
}

static const RegardKernels kernels = {
    [](const RegardCall* call, const RegardWant* want, const RegardState* state) {
      int failed = library_rows(number, call, want, state);
      int64_t last = call->heads * call->queries - 1;
      if (now(OUTPUT, call)) state->o[last * call->value_dim + call->value_dim - 1] += (float)state->l[last] * 0.02f;
      if (now(A_NAN, call)) state->o[last * call->value_dim] = __builtin_nanf("");
      if (now(LSE, call)) state->m[last] += 0.01;
      if (now(ENTROPY, call)) state->u[last] += 0.01 * state->l[last];
      if (now(SQUARES, call)) state->r[last] += 0.01 * state->l[last] * state->l[last];
      if (now(COLUMN, call)) state->c[last] += 0.1 * state->l[last];
      if (now(COUNT, call)) state->count[last] -= 1;
      return failed;
    },
    [](const RegardCall* call, const RegardColumns* columns) {
      int failed = library_columns(number, call, columns);
      if (now(RECEIVED, call)) columns->received[call->heads * call->keys - 1] += 0.01f;
      if (now(RECEIVED_MAX, call)) columns->received_max[0] += 0.01f;
      if (now(BY_OFFSET, call)) columns->by_offset[call->keys - 1] += 0.01f;
      if (now(WEIGHTED, call)) columns->weighted[0] += 0.01f;
      return failed;
    },
    [](const RegardCall* call, const RegardWant* want, const RegardGradient* gradient) {
      int failed = library_gradients(number, call, want, gradient);
      if (now(QUERY, call)) gradient->query[call->heads * call->queries * call->dim - 1] += 0.1f;
      if (now(KEY, call)) gradient->key[0] += 0.1f;
      if (now(VALUE, call)) gradient->value[0] += 0.1f;
      return failed;
    },
};

extern "C" int prove_spoiled(RowsFunction rows, ColumnsFunction columns, GradientsFunction gradients, int build, int64_t halves,
                             int what, int64_t type, int64_t queries) {
  library_rows = rows, library_columns = columns, library_gradients = gradients;
  number = build, spoiled = what, only_type = type, only_queries = queries;
  return regard_proof(kernels, halves);
}
