// Checks every build of the folds that this processor runs against double precision, on small cases drawn at random:
//     check [cases] [seed] [build …]
// This is the program that the sanitizers, valgrind and an emulated processor run: it needs neither Python nor torch.
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

#include "check_case.h"

extern "C" {
const char* regard_build(int i, int* runs);
int regard_rows(int build, const RegardCall* call, const RegardWant* want, const RegardState* state);
int regard_columns(int build, const RegardCall* call, const RegardColumns* columns);
int regard_gradients(int build, const RegardCall* call, const RegardWant* want, const RegardGradient* gradient);
int regard_look(int build, const RegardCall* call, const RegardWant* want, const RegardState* state,
                const RegardColumns* columns, const RegardLook* look);
int regard_prove(int build);
}

namespace {

constexpr int64_t TOP = 3, VECTORS = 3, FIRST = 2, LOW = -4, HIGH = 1, NEAREST = -9, FARTHEST = 40, IDS = 3;
enum { POSITION, SQUARE, DISTANCE, FIRST_WEIGHT, BAND_WEIGHT, GROUP_WEIGHT, MATCH_WEIGHT, COLUMNS };
constexpr double BOUND = 1e-4;    // of a float32 computation: a wrong pair of a hundred changes far more
constexpr double ROUNDED = 1e-2;  // of an output whose weights were rounded to bfloat16

int failures = 0;

void expect(const Case& drawn, const char* build, const char* what, double got, double wanted, double size, double bound = BOUND) {
  // an infinite value times a weight that float32 cannot hold is NaN
  bool same = got == wanted || fabs(got - wanted) <= bound * (size + fabs(wanted)) || (!isfinite(got) && !isfinite(wanted));
  if (same || ++failures > 20) return;
  const RegardCall& c = drawn.call;
  printf("%s, %s: got %g, wanted %g (heads %d/%d, queries %d, keys %d, dim %d, value_dim %d, offset %d, type %d, mask %d, "
         "bias %d, softcap %g)\n", build, what, got, wanted, (int)c.heads, (int)c.kv_heads, (int)c.queries, (int)c.keys,
         (int)c.dim, (int)c.value_dim, (int)c.offset, (int)c.type, (int)drawn.mask_kind, (int)c.bias_kind, c.softcap);
}

// The state of all rows, each array as long as it must be.
struct Rows {
  Array<float> o;
  Array<double> top_scores;
  Array<double> m, l, u, r, c, least;
  Array<int64_t> count, top_keys;
  RegardState state;

  explicit Rows(const RegardCall& call) {
    int64_t rows = call.batch * call.heads * call.queries;
    m.resize(rows), l.resize(rows), u.resize(rows), r.resize(rows), c.resize(rows * COLUMNS), count.resize(rows);
    least.resize(rows);
    o.resize(rows * call.value_dim), top_scores.resize(rows * TOP), top_keys.resize(rows * TOP);
    state = {m.data(), l.data(), u.data(), r.data(), c.data(), o.data(), count.data(), least.data(), top_scores.data(), top_keys.data()};
  }
};

// What a row is: its scores, the largest of them, and its weights; an empty row has only zeros.
struct Truth {
  Array<double> scores, weights;
  double largest = -INFINITE, smallest = INFINITE, normalizer = 0;
  int64_t allowed = 0, query, head, batch;

  Truth(const Case& drawn, int64_t row) {
    const RegardCall& call = drawn.call;
    query = row % call.queries, head = row / call.queries % call.heads, batch = row / call.queries / call.heads;
    for (int64_t key = 0; key < call.keys; key++) {
      scores.push_back(drawn.score(batch, head, query, key));
      allowed += scores.back() != -INFINITE;
      largest = std::max(largest, scores.back());
      if (scores.back() != -INFINITE) smallest = std::min(smallest, scores.back());
    }
    for (double score : scores) normalizer += allowed ? exp(score - largest) : 0;
    for (double score : scores) weights.push_back(allowed ? exp(score - largest) / normalizer : 0);
  }
};

// What the columns are about.
struct Groups {
  Array<uint8_t> members;        // (batch, keys)
  Array<int32_t> queries, keys;  // (batch, queries), (batch, keys): ids, some of which are no one's

  Groups(Random& random, const RegardCall& call) {
    for (int64_t i = 0; i < call.batch * call.keys; i++) members.push_back((uint8_t)random.below(2));
    for (int64_t i = 0; i < call.batch * call.queries; i++) queries.push_back((int32_t)random.below(IDS + 1) - 1);
    for (int64_t i = 0; i < call.batch * call.keys; i++) keys.push_back((int32_t)random.below(IDS));
  }
};

// φ of every linear column.
void columns_of(const RegardCall& call, const Groups& groups, const Truth& row, int64_t key, double* phi) {
  int64_t away = key - call.offset - row.query;
  phi[POSITION] = (double)key, phi[SQUARE] = (double)(key * key), phi[DISTANCE] = fabs((double)away);
  phi[FIRST_WEIGHT] = key < FIRST, phi[BAND_WEIGHT] = LOW <= away && away <= HIGH;
  phi[GROUP_WEIGHT] = groups.members[row.batch * call.keys + key];
  bool same = groups.keys[row.batch * call.keys + key] == groups.queries[row.batch * call.queries + row.query];
  phi[MATCH_WEIGHT] = same && NEAREST <= away && away <= FARTHEST;
}

void check_row(const Case& drawn, const char* build, const Rows& got, const Groups& groups, int64_t at) {
  const RegardCall& call = drawn.call;
  Truth row(drawn, at);
  Array<double> sorted = row.scores;
  std::sort(sorted.rbegin(), sorted.rend());
  auto check = [&](const char* what, double x, double wanted, double size) { expect(drawn, build, what, x, wanted, size); };

  check("count", (double)got.count[at], (double)row.allowed, 0);
  for (int64_t i = 0; i < TOP; i++) {
    int64_t key = got.top_keys[at * TOP + i];
    double wanted = i < call.keys ? sorted[i] : -INFINITE;
    check("top score", got.top_scores[at * TOP + i], wanted, 1);
    check("score of a top key", key < 0 ? -INFINITE : row.scores[key], wanted, 1);
  }
  double entropy = 0, squares = 0, columns[COLUMNS] = {};
  Array<double> output(call.value_dim);
  for (int64_t key = 0; key < call.keys; key++) {
    if (row.scores[key] == -INFINITE) continue;
    double w = row.weights[key], phi[COLUMNS];
    columns_of(call, groups, row, key, phi);
    if (w > 0) entropy -= w * log(w);
    squares += w * w;
    for (int64_t i = 0; i < COLUMNS; i++) columns[i] += w * phi[i];
    for (int64_t d = 0; d < call.value_dim; d++) output[d] += w * drawn.value(row.batch, row.head, key, d);
  }
  double l = row.allowed ? got.l[at] : 1;
  check("least", got.least[at], row.smallest, 1);
  check("lse", got.m[at] + log(l), row.largest + (row.allowed ? log(row.normalizer) : 0), 1);
  check("entropy", log(l) - got.u[at] / l, entropy, 1);
  check("squares", got.r[at] / (l * l), squares, 1);
  double reach = (double)(call.keys + call.queries), sizes[COLUMNS] = {reach, reach * reach, reach, 1, 1, 1, 1};
  const char* names[COLUMNS] = {"position", "square", "distance", "first", "band", "group", "match"};
  for (int64_t i = 0; i < COLUMNS; i++) check(names[i], got.c[at * COLUMNS + i] / l, columns[i], sizes[i]);
  double bound = call.halves && call.type == REGARD_BFLOAT16 ? ROUNDED : BOUND;
  for (int64_t d = 0; d < call.value_dim; d++)
    expect(drawn, build, "output", got.o[at * call.value_dim + d] / l, output[d], 1, bound);
}

struct Wanted {
  Groups groups;
  int64_t band = BAND_WEIGHT, low = LOW, high = HIGH, place = GROUP_WEIGHT;
  int64_t match = MATCH_WEIGHT, nearest = NEAREST, farthest = FARTHEST;
  RegardWant want;

  Wanted(Random& random, const RegardCall& call) : groups(random, call) {
    want = {1, 1, 1, 1, 1, TOP, COLUMNS, POSITION, SQUARE, DISTANCE, FIRST_WEIGHT, FIRST, 1, &band, &low, &high, 1,
            &place, groups.members.data(), call.keys, call.batch * call.keys, 1, &match, &nearest, &farthest,
            groups.queries.data(), groups.keys.data(), call.queries, call.batch * call.queries, call.keys, call.batch * call.keys};
  }
};

void fail(const char* build, const char* what) {
  printf("%s: %s\n", build, what);
  failures++;
}

Rows check_rows(const Case& drawn, const Wanted& wanted, int number, const char* build) {
  const RegardCall& call = drawn.call;
  RegardCall alone = call;
  alone.threads = 1;
  Rows got(call), again(call);
  if (regard_rows(number, &call, &wanted.want, &got.state)) fail(build, "the rows could not run");
  for (int64_t row = 0; row < (int64_t)got.m.size(); row++) check_row(drawn, build, got, wanted.groups, row);
  regard_rows(number, &alone, &wanted.want, &again.state);
  if (memcmp(got.u.data(), again.u.data(), 8 * got.u.size()) || memcmp(got.o.data(), again.o.data(), 4 * got.o.size()))
    fail(build, "the rows' bits depend on the number of threads");
  return got;
}

// Cells of 2 to 16 tokens a side.
int64_t cell_bits(const RegardCall& call) { return 1 + (call.queries + call.keys) % 4; }

void check_columns(const Case& drawn, int number, const char* build) {
  const RegardCall& call = drawn.call;
  const int64_t bits = cell_bits(call);
  int64_t heads = call.batch * call.heads, start = call.offset >> bits, keys = call.keys;
  int64_t grid_q = ((call.offset + call.queries - 1) >> bits) - start + 1, grid_k = ((keys - 1) >> bits) + 1;
  Array<double> sums(heads * keys), tops(heads * keys), total(heads * grid_q * grid_k), peak(total.size());
  Array<double> m, log_l, diagonals(heads * (call.queries + keys - 1)), weighted(heads * keys * VECTORS);
  Array<float> given(heads * call.queries * VECTORS);
  for (size_t i = 0; i < given.size(); i++) given[i] = (float)(i % 7) / 4 - 0.5f;
  for (int64_t at = 0; at < heads * call.queries; at++) {
    Truth row(drawn, at);
    m.push_back(row.largest);
    log_l.push_back(row.allowed ? log(row.normalizer) : -INFINITE);
    int64_t head = at / call.queries, cell_q = ((call.offset + row.query) >> bits) - start;
    for (int64_t key = 0; key < keys; key++) {
      int64_t cell = (head * grid_q + cell_q) * grid_k + (key >> bits);
      double w = row.weights[key];
      sums[head * keys + key] += w, tops[head * keys + key] = std::max(tops[head * keys + key], w);
      total[cell] += w, peak[cell] = std::max(peak[cell], w);
      diagonals[head * (call.queries + keys - 1) + row.query - key + keys - 1] += w;
      for (int64_t v = 0; v < VECTORS; v++)
        weighted[(head * keys + key) * VECTORS + v] += w * given[at * VECTORS + v];
    }
  }
  Array<float> got_sums(sums.size()), got_tops(sums.size()), got_total(total.size()), got_peak(total.size());
  Array<float> got_diagonals(diagonals.size()), got_weighted(weighted.size());
  RegardColumns columns = {m.data(), log_l.data(), got_sums.data(), got_tops.data(), 1 << bits, grid_q, grid_k,
                           start * (1 << bits), 0, got_total.data(), got_peak.data(), got_diagonals.data(), VECTORS,
                           given.data(), got_weighted.data()};
  if (regard_columns(number, &call, &columns)) fail(build, "the columns could not run");
  Array<float> only_total(total.size()), only_peak(total.size());
  RegardColumns only = {m.data(), log_l.data(), nullptr, nullptr, 1 << bits, grid_q, grid_k, start * (1 << bits), 0,
                        only_total.data(), only_peak.data(), nullptr, 0, nullptr, nullptr};
  if (regard_columns(number, &call, &only)) fail(build, "the map could not run");
  for (size_t i = 0; i < total.size(); i++) expect(drawn, build, "map alone, total", only_total[i], total[i], 1);
  for (size_t i = 0; i < total.size(); i++) expect(drawn, build, "map alone, peak", only_peak[i], peak[i], 1);
  for (size_t i = 0; i < sums.size(); i++) expect(drawn, build, "received", got_sums[i], sums[i], 1);
  for (size_t i = 0; i < sums.size(); i++) expect(drawn, build, "received_max", got_tops[i], tops[i], 1);
  for (size_t i = 0; i < diagonals.size(); i++) expect(drawn, build, "by offset", got_diagonals[i], diagonals[i], 1);
  for (size_t i = 0; i < weighted.size(); i++) expect(drawn, build, "weighted", got_weighted[i], weighted[i], 1);
  for (size_t i = 0; i < total.size(); i++) expect(drawn, build, "map, total", got_total[i], total[i], 1);
  for (size_t i = 0; i < total.size(); i++) expect(drawn, build, "map, peak", got_peak[i], peak[i], 1);
}

// Both folds in one call are the rows, what is read of them, and the columns.
void check_look(const Case& drawn, const Wanted& wanted, const Rows& state, int number, const char* build) {
  const RegardCall& call = drawn.call;
  const int64_t bits = cell_bits(call);
  const size_t rows = state.m.size(), sums = (size_t)(call.batch * call.heads * call.keys);
  const int64_t start = call.offset >> bits, grid_k = ((call.keys - 1) >> bits) + 1;
  const int64_t grid_q = ((call.offset + call.queries - 1) >> bits) - start + 1;
  const size_t cells = (size_t)(call.batch * call.heads * grid_q);
  Rows again(call);
  Array<float> read(7 * rows), columns(COLUMNS * rows), received(2 * sums), alone(2 * sums), map(2 * cells * (size_t)grid_k);
  Array<double> log_l(rows);
  Array<int64_t> argmax(rows), counts(cells);
  float* at[7];
  for (size_t i = 0; i < 7; i++) at[i] = read.data() + i * rows;
  RegardLook look = {at[0], at[1], at[2], at[3], at[4], at[5], at[6], columns.data(), argmax.data(), log_l.data(), counts.data()};
  RegardColumns second = {again.m.data(), log_l.data(), received.data(), received.data() + sums, 1 << bits, grid_q,
                          grid_k, start * (1 << bits), 0, map.data(), map.data() + cells * (size_t)grid_k, nullptr, 0, nullptr, nullptr};
  if (regard_look(number, &call, &wanted.want, &again.state, &second, &look)) return fail(build, "one call could not run");
  int64_t attending = 0, counted = 0;
  for (size_t i = 0; i < rows; i++) {
    const double l = state.l[i], total = l == 0 ? 1 : l;
    attending += l != 0;
    expect(drawn, build, "one call, lse", look.lse[i], l == 0 ? -INFINITE : state.m[i] + log(l), 1);
    expect(drawn, build, "one call, entropy", look.entropy[i], log(total) - state.u[i] / total, 1);
    expect(drawn, build, "one call, least", look.min_weight[i], l == 0 ? 0 : exp(state.least[i] - state.m[i]) / total, 1);
    expect(drawn, build, "one call, squares", look.sum_squares[i], state.r[i] / (total * total), 1);
    for (size_t d = 0; d < (size_t)call.value_dim; d++) {
      const size_t place = i * (size_t)call.value_dim + d;
      expect(drawn, build, "one call, output", again.o[place], l == 0 ? 0 : state.o[place] / total, 1);
    }
    for (size_t j = 0; j < COLUMNS; j++)
      expect(drawn, build, "one call, column", columns[j * rows + i], state.c[i * COLUMNS + j] / total, 1);
  }
  for (int64_t count : counts) counted += count;
  if (counted != attending) fail(build, "one call counts other queries that attend");
  RegardColumns apart = {again.m.data(), log_l.data(), alone.data(), alone.data() + sums, 0, 0, 0, 0, 0, nullptr, nullptr, nullptr,
                         0, nullptr, nullptr};
  if (regard_columns(number, &call, &apart)) return fail(build, "the columns could not run");
  for (size_t i = 0; i < 2 * sums; i++) expect(drawn, build, "one call, received", received[i], alone[i], 1);
}

template <class T>
void compare(const Case& drawn, const char* build, const char* what, const Array<T>& got, const Array<double>& wanted) {
  double size = 1;
  for (double x : wanted) size = std::max(size, fabs(x));
  for (size_t i = 0; i < got.size(); i++) expect(drawn, build, what, got[i], wanted[i], size);
}

// The gradient of Σ g · state, with the state's own m as the constant that it is.
void check_gradients(Random& random, const Case& drawn, const Wanted& wanted, const Rows& state, int number, const char* build) {
  const RegardCall& call = drawn.call;
  int64_t rows = call.batch * call.heads * call.queries, kv_rows = call.batch * call.kv_heads * call.keys;
  Array<double> l, u, r, c, query(rows * call.dim), key(kv_rows * call.dim), value(kv_rows * call.value_dim);
  Array<double> table(drawn.bias.size());
  Array<float> o;
  for (int64_t i = 0; i < rows; i++) l.push_back(random.number()), u.push_back(random.number()), r.push_back(random.number());
  for (int64_t i = 0; i < rows * call.value_dim; i++) o.push_back(random.number());
  for (int64_t i = 0; i < rows * COLUMNS; i++) c.push_back(random.number() / (double)(call.keys * call.keys));
  for (int64_t at = 0; at < rows; at++) {
    Truth row(drawn, at);
    int64_t kv_head = row.batch * call.kv_heads + row.head / (call.heads / call.kv_heads);
    for (int64_t k = 0; k < call.keys; k++) {
      if (row.scores[k] == -INFINITE) continue;
      double x = row.scores[k] - state.m[at], p = exp(x), grad = l[at] + u[at] * (x + 1) + 2 * r[at] * p, phi[COLUMNS];
      columns_of(call, wanted.groups, row, k, phi);
      for (int64_t i = 0; i < COLUMNS; i++) grad += c[at * COLUMNS + i] * phi[i];
      for (int64_t d = 0; d < call.value_dim; d++) {
        grad += o[at * call.value_dim + d] * drawn.value(row.batch, row.head, k, d);
        value[(kv_head * call.keys + k) * call.value_dim + d] += p * o[at * call.value_dim + d];
      }
      grad *= p;
      if (!table.empty()) table[drawn.bias_at(row.head, row.query, k)] += grad * drawn.bias_factor(row.query, k);
      grad *= call.scale * drawn.softcap_grad(row.batch, row.head, row.query, k);
      for (int64_t d = 0; d < call.dim; d++) {
        query[at * call.dim + d] += grad * drawn.tensors[1].at(row.batch, row.head / (call.heads / call.kv_heads), k, d);
        key[(kv_head * call.keys + k) * call.dim + d] += grad * drawn.tensors[0].at(row.batch, row.head, row.query, d);
      }
    }
  }
  Array<float> got_query(query.size()), got_key(key.size()), got_value(value.size());
  Array<double> bias(drawn.bias.size());
  RegardGradient gradient = {};
  gradient.m = state.m.data(), gradient.l = l.data(), gradient.u = u.data(), gradient.r = r.data(), gradient.c = c.data();
  gradient.o = o.data(), gradient.query = got_query.data(), gradient.key = got_key.data(), gradient.value = got_value.data();
  gradient.bias = bias.empty() ? nullptr : bias.data(), gradient.bias_count = (int64_t)bias.size();
  memcpy(gradient.bias_stride, call.bias_stride, sizeof(call.bias_stride));
  if (call.bias_kind == REGARD_ALIBI) gradient.bias_stride[1] = 1;
  if (regard_gradients(number, &call, &wanted.want, &gradient)) fail(build, "the gradients could not run");
  compare(drawn, build, "gradient of the query", got_query, query);
  compare(drawn, build, "gradient of the key", got_key, key);
  compare(drawn, build, "gradient of the value", got_value, value);
  compare(drawn, build, "gradient of the bias", bias, table);
}

}  // namespace

int main(int count, char** arguments) {
  int cases = count > 1 ? atoi(arguments[1]) : 100, runs, ran = 0;
  for (int number = 0; const char* build = regard_build(number, &runs); number++) {
    bool wanted = count <= 3;
    for (int i = 3; i < count; i++) wanted = wanted || !strcmp(arguments[i], build);
    if (!runs || !wanted) continue;
    if (regard_prove(number)) fail(build, "it does not prove itself");
    Random random = {count > 2 ? (uint64_t)atoll(arguments[2]) | 1 : 1};
    for (int i = 0; i < cases; i++) {
      Case drawn(random);
      drawn.call.halves = !strcmp(build, "amx") ? 2 : !strcmp(build, "avx512_bf16") ? 1 : 0;
      Wanted wanted(random, drawn.call);
      Rows state = check_rows(drawn, wanted, number, build);
      check_columns(drawn, number, build);
      check_look(drawn, wanted, state, number, build);
      if (!drawn.broken) check_gradients(random, drawn, wanted, state, number, build);
    }
    printf("%s: %d cases\n", build, cases);
    ran++;
  }
  printf("%d wrong\n", failures);
  return failures > 0 || ran == 0;
}
